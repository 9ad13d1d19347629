//! Flags: name, shape and default.

/// Turns the text of a flag into its value, or says what is wrong with it.
pub(crate) type Check = fn(&str) -> Result<String, String>;

/// What kind of value a flag takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Text,
    Bool,
    /// Given several times or separated by commas.
    List,
    /// Given several times; commas are part of the value.
    Array,
    /// `key=value`, given several times or separated by commas.
    Pairs,
    Duration,
    Int,
    Float,
    /// A closed set or a form of its own.
    Checked(Check),
}

/// One flag.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) short: Option<char>,
    pub(crate) shape: Shape,
    pub(crate) default: &'static str,
    pub(crate) hidden: bool,
    pub(crate) deprecated: bool,
}

impl Flag {
    pub(super) const fn short(mut self, letter: char) -> Flag {
        self.short = Some(letter);
        self
    }

    pub(super) const fn hidden(mut self) -> Flag {
        self.hidden = true;
        self
    }

    pub(super) const fn deprecated(mut self) -> Flag {
        self.deprecated = true;
        self
    }

    /// What kind of value it takes, in the words of pflag.
    pub(crate) fn value_name(&self) -> &'static str {
        match self.shape {
            Shape::Bool => "",
            Shape::Text | Shape::Checked(_) => "string",
            Shape::List => "strings",
            Shape::Array => "stringArray",
            Shape::Pairs => "stringToString",
            Shape::Duration => "duration",
            Shape::Int => "int",
            Shape::Float => "float32",
        }
    }

    pub(crate) fn is_bool(&self) -> bool {
        matches!(self.shape, Shape::Bool)
    }
}

const fn flag(name: &'static str, shape: Shape, default: &'static str) -> Flag {
    Flag { name, short: None, shape, default, hidden: false, deprecated: false }
}

pub(super) const fn string(name: &'static str, default: &'static str) -> Flag {
    flag(name, Shape::Text, default)
}

pub(super) const fn boolean(name: &'static str) -> Flag {
    flag(name, Shape::Bool, "false")
}

pub(super) const fn boolean_on(name: &'static str) -> Flag {
    flag(name, Shape::Bool, "true")
}

pub(super) const fn strings(name: &'static str, default: &'static str) -> Flag {
    flag(name, Shape::List, default)
}

pub(super) const fn array(name: &'static str, default: &'static str) -> Flag {
    flag(name, Shape::Array, default)
}

pub(super) const fn pairs(name: &'static str, default: &'static str) -> Flag {
    flag(name, Shape::Pairs, default)
}

pub(super) const fn duration(name: &'static str, default: &'static str) -> Flag {
    flag(name, Shape::Duration, default)
}

pub(super) const fn int(name: &'static str, default: &'static str) -> Flag {
    flag(name, Shape::Int, default)
}

pub(super) const fn float(name: &'static str, default: &'static str) -> Flag {
    flag(name, Shape::Float, default)
}

pub(super) const fn checked(name: &'static str, default: &'static str, check: Check) -> Flag {
    flag(name, Shape::Checked(check), default)
}

/// Flags of every command.
pub(super) static GLOBAL: &[Flag] = &[
    string("as", ""),
    array("as-group", ""),
    string("as-uid", ""),
    array("as-user-extra", ""),
    string("cache-dir", "$HOME/.kube/cache"),
    string("certificate-authority", ""),
    string("client-certificate", ""),
    string("client-key", ""),
    string("cluster", ""),
    string("context", ""),
    boolean("disable-compression"),
    boolean("insecure-skip-tls-verify"),
    int("kube-api-burst", "300"),
    float("kube-api-qps", "50"),
    string("kubeconfig", ""),
    string("namespace", "flux-system").short('n'),
    boolean("ns-follows-kube-context"),
    string("server", ""),
    duration("timeout", "5m0s"),
    string("tls-server-name", ""),
    string("token", ""),
    string("user", ""),
    boolean("verbose"),
];
