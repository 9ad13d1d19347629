//! What can go wrong in a build. `Display` gives kustomize's own words, since scripts read them.

use std::fmt;

/// Why a build failed. [`Error::class`] tells kinds of failures apart; the text says where and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Where it happened, then what.
    Context { context: String, source: Box<Error> },
    /// What happened in kustomize's words, then the object and the file it happened to, which those leave out.
    Located { source: Box<Error>, place: String },
    /// A path in `resources` is no usable file, and no folder that builds either.
    NeitherFileNorFolder { as_file: Box<Error>, as_folder: Box<Error> },
    /// Independent failures of one build.
    Several(Vec<Error>),
    /// The kustomization file cannot be read as one.
    InvalidKustomization { folder: String, cause: String },
    /// The kustomization file holds nothing.
    EmptyKustomization,
    /// `kind` or `apiVersion` of the kustomization file is wrong.
    WrongHeader { folder: String, problems: Vec<String> },
    /// A folder holds no kustomization file.
    MissingKustomization { folder: String },
    /// A folder holds more than one.
    MultipleKustomizations { folder: String },
    /// Anything with a class of its own.
    Other { class: Class, text: String },
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A file or folder is missing, unreadable, or of the wrong sort.
    Load,
    /// A path leaves the folder (or the tree) it must stay in.
    Escape,
    /// A folder includes itself.
    Cycle,
    /// A URL or Git repository: the caller has to fetch it first.
    Remote,
    /// Text that is no YAML, or no object.
    Yaml,
    /// Two resources have one id.
    DuplicateId,
    /// The kustomization file or a plugin configuration asks for something impossible.
    Config,
    /// A patch cannot be read or applied.
    Patch,
    /// A patch finds no resource, or several.
    PatchTarget,
    /// A generator cannot make its object.
    Generator,
    /// A replacement or variable cannot be resolved.
    Replacement,
    /// A name could refer to several resources.
    Reference,
    /// A transformer meets a field it cannot change.
    Transform,
    /// A schema in `openapi` or `crds` cannot be used.
    Schema,
    /// A result cannot be written as YAML.
    Output,
    /// Something kustomize can do elsewhere but this build refuses: plugins, Helm charts.
    Refused,
    /// The input asks for more than a build will do.
    Limit,
}

impl Error {
    pub(crate) fn new(class: Class, text: impl Into<String>) -> Self {
        Self::Other { class, text: text.into() }
    }

    /// The same error with a place before it; each of several gets its own.
    pub(crate) fn context(self, context: impl Into<String>) -> Self {
        let context = context.into();
        match self {
            Self::Several(errors) => {
                Self::Several(errors.into_iter().map(|error| error.context(context.clone())).collect())
            }
            error => Self::Context { context, source: Box::new(error) },
        }
    }

    /// The same error with the object or file it is about behind it.
    pub(crate) fn located(self, place: impl Into<String>) -> Self {
        let new = place.into();
        match self {
            Self::Located { source, place } => Self::Located { source, place: format!("{place}, {new}") },
            error => Self::Located { source: Box::new(error), place: new },
        }
    }

    /// The errors of independent parts as one.
    pub(crate) fn join(errors: Vec<Error>) -> Result<(), Error> {
        let mut flat = Vec::new();
        for error in errors {
            match error {
                Self::Several(several) => flat.extend(several),
                error => flat.push(error),
            }
        }
        match flat.len() {
            0 => Ok(()),
            1 => Err(flat.remove(0)),
            _ => Err(Self::Several(flat)),
        }
    }

    /// What kind of failure this is; of several, the first.
    pub fn class(&self) -> Class {
        match self {
            Self::Context { source, .. } | Self::Located { source, .. } => source.class(),
            Self::NeitherFileNorFolder { as_file, as_folder } => {
                // A file that was read but is no resource says more than that it is no folder.
                match (as_file.class(), as_folder.class()) {
                    (Class::Load, folder) => folder,
                    (file, Class::Load) => file,
                    (_, folder) => folder,
                }
            }
            Self::Several(errors) => errors.first().map_or(Class::Config, Self::class),
            Self::InvalidKustomization { .. } | Self::EmptyKustomization | Self::WrongHeader { .. } => {
                Class::Config
            }
            Self::MissingKustomization { .. } | Self::MultipleKustomizations { .. } => Class::Load,
            Self::Other { class, .. } => *class,
        }
    }

    /// Every failure of the build by itself.
    pub fn each(&self) -> Vec<&Error> {
        match self {
            Self::Several(errors) => errors.iter().collect(),
            error => vec![error],
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Context { context, source } => write!(f, "{context}: {source}"),
            Self::Located { source, place } => write!(f, "{}\n({place})", source.to_string().trim_end()),
            Self::NeitherFileNorFolder { as_file, as_folder } => {
                write!(f, "accumulation err='{as_file}': {as_folder}")
            }
            Self::Several(errors) => {
                for (at, error) in errors.iter().enumerate() {
                    if at > 0 {
                        f.write_str("\n")?;
                    }
                    write!(f, "{error}")?;
                }
                Ok(())
            }
            Self::InvalidKustomization { cause, .. } => write!(f, "invalid Kustomization: {cause}"),
            Self::EmptyKustomization => f.write_str("kustomization.yaml is empty"),
            Self::WrongHeader { folder, problems } => {
                write!(f, "Failed to read kustomization file under {folder}:\n{}", problems.join("\n"))
            }
            Self::MissingKustomization { folder } => write!(
                f,
                "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{folder}'"
            ),
            Self::MultipleKustomizations { folder } => {
                writeln!(f, "Found multiple kustomization files under: {folder}")
            }
            Self::Other { text, .. } => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// An error about a Secret, without the contents that kustomize would quote.
pub(crate) fn without_contents(text: &str) -> String {
    match text.split_once("node contents:\n") {
        Some((before, _)) => format!("{before}node contents are not shown, since they are a Secret's"),
        None => text.to_owned(),
    }
}

/// Adds a place to the error of a result.
pub(crate) trait Context<T> {
    fn context(self, context: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Context<T> for Result<T, Error> {
    fn context(self, context: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|error| error.context(context()))
    }
}
