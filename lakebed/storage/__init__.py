"""The storage of tables: one protocol, and its implementations on local disk, in memory and on object stores."""
