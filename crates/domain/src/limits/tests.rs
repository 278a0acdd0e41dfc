//! What a meter grants, refuses and learns.
