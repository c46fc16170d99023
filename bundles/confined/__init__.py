"""Work done by a process without privileges: what it may do, how it is started, and how it is spoken to."""
