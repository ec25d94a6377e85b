"""Options and table settings: each declared once."""
