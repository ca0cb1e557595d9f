//! One description per policy or breaker, from which everything a user sees is made.
//!
//! Config parsing, its error messages, `tidegate policies`, the JSON Schema and the docs pages all read the same [`Descriptor`], so a
//! default, unit or range is written once and cannot drift.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// What a policy is called, what it does, and what it can be told.
#[derive(Debug)]
pub struct Descriptor {
    /// The name users write in a config file.
    pub name: &'static str,
    /// One sentence: the rule.
    pub summary: &'static str,
    /// Where the formula comes from.
    pub source: &'static str,
    /// A config line that works as it stands.
    pub example: &'static str,
    /// Whether the rule warms a new endpoint up by itself, so that the default warm-up steps are left out.
    pub warms_up: bool,
    /// Whether the rule goes where load or time is lowest, and not by share: a lowered weight does not hold it back, a rate does.
    pub chases_load: bool,
    /// Every parameter, in the order in which docs list them.
    pub params: &'static [Param],
}

impl Descriptor {
    /// The parameter called `name`.
    pub fn param(&self, name: &str) -> Option<&'static Param> {
        self.params.iter().find(|p| p.name == name)
    }
}

/// One parameter of a policy.
#[derive(Debug)]
pub struct Param {
    /// The key in a config file.
    pub name: &'static str,
    /// What it changes, in one sentence.
    pub summary: &'static str,
    /// The unit of a plain number: `"tokens"`, `"fraction"`; empty where it has none, `"s"` for durations.
    pub unit: &'static str,
    /// Type and range.
    pub kind: ParamKind,
    /// The value used when the key is absent.
    pub default: Value,
    /// A value worth showing in an error message.
    pub example: &'static str,
}

/// Type and inclusive range of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamKind {
    /// A number.
    Float {
        /// Smallest allowed value.
        min: f64,
        /// Largest allowed value.
        max: f64,
    },
    /// A whole number.
    Integer {
        /// Smallest allowed value.
        min: u64,
        /// Largest allowed value.
        max: u64,
    },
    /// A duration such as `250ms`; the range is in seconds.
    Duration {
        /// Shortest allowed, in seconds.
        min: f64,
        /// Longest allowed, in seconds.
        max: f64,
        /// Whether the word `off` is allowed.
        can_be_off: bool,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Bool,
    /// Where in a request a hash key is found: `{ header: NAME }`, `{ cookie: NAME }`, `{ body: FIELD }`, `tenant` or `prompt`. The shell
    /// extracts it; the picker sees its hash in the request.
    Key,
    /// The path of an HTTP request, starting with `/`. The shell asks for it; core never sees it.
    Path,
}

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Float(f64),
    /// A whole number.
    Integer(u64),
    /// A duration in seconds.
    Duration(f64),
    /// The word `off`, or a key or path that is not set.
    Off,
    /// A word.
    Choice(&'static str),
    /// A truth value.
    Bool(bool),
}

/// Why a value was not accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueError {
    /// The policy has no parameter of this name.
    Unknown,
    /// The value is of another type than the parameter.
    WrongType,
    /// The value is outside the parameter's range.
    OutOfRange,
}

impl ParamKind {
    /// Whether `value` is of this type and in range.
    pub fn check(&self, value: Value) -> Result<(), ValueError> {
        let in_range = match (*self, value) {
            (Self::Float { min, max }, Value::Float(v)) => v >= min && v <= max,
            (Self::Integer { min, max }, Value::Integer(v)) => v >= min && v <= max,
            (Self::Duration { min, max, .. }, Value::Duration(v)) => v >= min && v <= max,
            (Self::Duration { can_be_off: true, .. } | Self::Key | Self::Path, Value::Off)
            | (Self::Bool, Value::Bool(_)) => true,
            (Self::Choice(words), Value::Choice(w)) => words.contains(&w),
            _ => return Err(ValueError::WrongType),
        };
        if in_range { Ok(()) } else { Err(ValueError::OutOfRange) }
    }
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Float { min, max } => write!(f, "a number from {min} to {max}"),
            Self::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Duration { min, max, can_be_off } => {
                write!(f, "a duration from {} to {}", Value::Duration(min), Value::Duration(max))?;
                if can_be_off { f.write_str(", or off") } else { Ok(()) }
            }
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::Bool => f.write_str("true or false"),
            Self::Path => f.write_str("a path that starts with /"),
            Self::Key => f.write_str("{ header: NAME }, { cookie: NAME }, { body: FIELD }, tenant or prompt"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Float(v) => write!(f, "{v}"),
            Self::Integer(v) => write!(f, "{v}"),
            Self::Duration(s) if s != 0.0 && s < 1.0 => write!(f, "{}ms", s * 1e3),
            Self::Duration(s) => write!(f, "{s}s"),
            Self::Off => f.write_str("off"),
            Self::Choice(w) => f.write_str(w),
            Self::Bool(b) => write!(f, "{b}"),
        }
    }
}

/// The parameters of one policy: what was set, and the descriptor's defaults for the rest.
#[derive(Clone, Debug)]
pub struct Params {
    descriptor: &'static Descriptor,
    set: Vec<(&'static str, Value)>,
}

/// Equal where every parameter has the same value, whether it was set or is the default.
impl PartialEq for Params {
    fn eq(&self, other: &Self) -> bool {
        let same = |p: &Param| self.get(p.name) == other.get(p.name);
        self.descriptor.name == other.descriptor.name && self.descriptor.params.iter().all(same)
    }
}

impl Params {
    /// All parameters at their defaults.
    pub fn defaults(descriptor: &'static Descriptor) -> Self {
        Self { descriptor, set: Vec::new() }
    }

    /// The policy these parameters belong to.
    pub fn descriptor(&self) -> &'static Descriptor {
        self.descriptor
    }

    /// Sets `name`, once its type and range are checked.
    pub fn set(&mut self, name: &str, value: Value) -> Result<(), ValueError> {
        let param = self.descriptor.param(name).ok_or(ValueError::Unknown)?;
        param.kind.check(value)?;
        self.set.retain(|(n, _)| *n != param.name);
        self.set.push((param.name, value));
        Ok(())
    }

    /// The value of `name`: as set, else the default.
    pub fn get(&self, name: &str) -> Value {
        let set = self.set.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        set.or_else(|| self.descriptor.param(name).map(|p| p.default)).unwrap_or(Value::Off)
    }

    /// What was set explicitly, in order.
    pub fn explicit(&self) -> &[(&'static str, Value)] {
        &self.set
    }

    /// `name`, or `name:form` where a form was given: the label of a row in a report.
    pub fn label(&self) -> String {
        let mut label = String::from(self.descriptor.name);
        if let Some((_, Value::Choice(form))) = self.set.iter().find(|(n, _)| *n == "form") {
            label.push(':');
            label.push_str(form);
        }
        label
    }

    /// A number; whole numbers and durations (in seconds) read as numbers too, anything else as 0.
    pub fn float(&self, name: &str) -> f64 {
        match self.get(name) {
            Value::Float(v) | Value::Duration(v) => v,
            Value::Integer(v) => v as f64,
            _ => 0.0,
        }
    }

    /// A duration in seconds, `None` when off.
    pub fn seconds(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Value::Duration(v) => Some(v),
            _ => None,
        }
    }

    /// A whole number.
    pub fn integer(&self, name: &str) -> u64 {
        match self.get(name) {
            Value::Integer(v) => v,
            _ => 0,
        }
    }

    /// A word.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.get(name) {
            Value::Choice(w) => w,
            _ => "",
        }
    }

    /// A truth value.
    pub fn bool(&self, name: &str) -> bool {
        self.get(name) == Value::Bool(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    static DEMO: Descriptor = Descriptor {
        name: "demo",
        summary: "",
        source: "",
        example: "",
        warms_up: false,
        chases_load: false,
        params: &[
            Param {
                name: "form",
                summary: "",
                unit: "",
                kind: ParamKind::Choice(&["a", "b"]),
                default: Value::Choice("a"),
                example: "a",
            },
            Param {
                name: "window",
                summary: "",
                unit: "s",
                kind: ParamKind::Duration { min: 0.1, max: 60.0, can_be_off: true },
                default: Value::Duration(1.0),
                example: "250ms",
            },
        ],
    };

    #[test]
    fn only_values_of_the_right_type_and_range_are_accepted() {
        let mut p = Params::defaults(&DEMO);
        assert_eq!(p.set("windw", Value::Off), Err(ValueError::Unknown));
        assert_eq!(p.set("window", Value::Float(1.0)), Err(ValueError::WrongType));
        assert_eq!(p.set("window", Value::Duration(61.0)), Err(ValueError::OutOfRange));
        assert_eq!(p.set("window", Value::Off), Ok(()));
        assert_eq!(p.seconds("window"), None);
        assert_eq!(Params::defaults(&DEMO).seconds("window"), Some(1.0));
    }

    #[test]
    fn a_given_form_is_part_of_the_label() {
        let mut p = Params::defaults(&DEMO);
        assert_eq!(p.label(), "demo");
        p.set("form", Value::Choice("b")).unwrap();
        assert_eq!(p.label(), "demo:b");
    }

    #[test]
    fn ranges_read_as_sentences() {
        assert_eq!(DEMO.params[1].kind.to_string(), "a duration from 100ms to 60s, or off");
    }
}
