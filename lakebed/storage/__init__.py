"""Where tables live: one protocol, and the local, in-memory and object stores behind it."""
