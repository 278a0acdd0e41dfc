//! Understanding of English for the skills: tokens, patterns, references to earlier outputs, and the reader that reduces a
//! text operation by operation. `skills` provides the rules and knows units and facts.

pub(crate) mod pattern;
pub(crate) mod reader;
pub(crate) mod reference;
pub(crate) mod slot;
pub(crate) mod token;
