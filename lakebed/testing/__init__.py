"""What tests of tables need: failures on demand and a clock set by hand."""
