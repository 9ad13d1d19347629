//! What templates find at the top: `.Chart`, `.Files`, `.Release`, `.Capabilities`, `.Template`.

use std::any::Any;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gotemplate::{
    Context, Failure, List, Map, MapEntries, Methods, Named, Object, Signature, Str, Type, Value,
};

use super::{Operation, ReleaseOptions, functions, glob};
use crate::Dialect;
use crate::capabilities::{Capabilities, HelmVersion, KubeVersion};
use crate::chart::{Dependency, File, Metadata};
use crate::values::{Lookup, from_json, path_value, table_at};

pub(super) fn release(options: &ReleaseOptions) -> Value {
    Value::map([
        ("Name", Value::from(options.name.as_str())),
        ("Namespace", Value::from(options.namespace.as_str())),
        ("IsUpgrade", Value::Bool(options.operation == Operation::Upgrade)),
        ("IsInstall", Value::Bool(options.operation == Operation::Install)),
        ("Revision", Value::Int(options.revision)),
        ("Service", Value::from("Helm")),
    ])
}

pub(super) fn template(name: &str, base_path: &str, dialect: Dialect) -> Value {
    values(Map::from_entries([("Name", Value::from(name)), ("BasePath", Value::from(base_path))]), dialect)
}

/// The values of the outermost chart, which are a type of their own in Go.
pub(super) fn values(table: Map, dialect: Dialect) -> Value {
    Value::Map(typed(table, dialect))
}

/// A map of Helm's own type for values; what templates are executed with has it, too.
pub(super) fn typed(table: Map, dialect: Dialect) -> Map {
    let named = match dialect {
        Dialect::Helm4 => &VALUES,
        Dialect::Helm3 => &VALUES_3,
    };
    Map::typed(Type::Named(named), table.take())
}

/// `.Chart`: a map in Helm 4, where an unknown field is empty; a struct in Helm 3, where it is an error.
pub(super) fn chart(metadata: &Metadata, is_root: bool, dialect: Dialect) -> Value {
    let fields = chart_fields(metadata, is_root);
    match dialect {
        Dialect::Helm4 => Value::map(fields),
        Dialect::Helm3 => Value::object(ChartStruct { fields }),
    }
}

fn chart_fields(metadata: &Metadata, is_root: bool) -> Vec<(&'static str, Value)> {
    let text = |text: &str| Value::from(text);
    let texts = |texts: &[String]| Value::list(texts.iter().map(|t| Value::from(t.as_str())).collect());
    let maintainers = metadata
        .maintainers
        .iter()
        .map(|m| Value::map([("Name", text(&m.name)), ("Email", text(&m.email)), ("URL", text(&m.url))]));
    let entry = |(key, value): (&String, &String)| (Str::from(key), Value::from(value.as_str()));
    let annotations = match &metadata.annotations {
        Some(annotations) => Map::typed(Type::Map(&Type::String), annotations.iter().map(entry).collect()),
        None => Map::nil(Type::Map(&Type::String)),
    };
    vec![
        ("Name", text(&metadata.name)),
        ("Home", text(&metadata.home)),
        ("Sources", texts(&metadata.sources)),
        ("Version", text(&metadata.version)),
        ("Description", text(&metadata.description)),
        ("Keywords", texts(&metadata.keywords)),
        ("Maintainers", Value::list(maintainers.collect())),
        ("Icon", text(&metadata.icon)),
        ("APIVersion", text(&metadata.api_version)),
        ("Condition", text(&metadata.condition)),
        ("Tags", text(&metadata.tags)),
        ("AppVersion", text(&metadata.app_version)),
        ("Deprecated", Value::Bool(metadata.deprecated)),
        ("Annotations", Value::Map(annotations)),
        ("KubeVersion", text(&metadata.kube_version)),
        ("Dependencies", Value::list(metadata.dependencies.iter().flatten().map(dependency).collect())),
        ("Type", text(&metadata.chart_type)),
        ("IsRoot", Value::Bool(is_root)),
    ]
}

fn dependency(d: &Dependency) -> Value {
    let text = |text: &str| Value::from(text);
    Value::map([
        ("Name", text(&d.name)),
        ("Version", text(&d.version)),
        ("Repository", text(&d.repository)),
        ("Condition", text(&d.condition)),
        ("Tags", Value::list(d.tags.iter().map(|t| text(t)).collect())),
        ("Enabled", Value::Bool(d.enabled)),
        ("ImportValues", Value::list(d.import_values.iter().flatten().map(from_json).collect())),
        ("Alias", text(&d.alias)),
    ])
}

struct ChartStruct {
    fields: Vec<(&'static str, Value)>,
}

impl Object for ChartStruct {
    fn type_name(&self) -> &'static str {
        "struct { chart.Metadata; IsRoot bool }"
    }

    fn field(&self, name: &str) -> Option<Value> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.clone())
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        self.fields.clone()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn files(files: &[File]) -> Value {
    file_map(
        files.iter().map(|file| (Str::from(&file.name), Value::Bytes(Rc::new(file.data.clone())))).collect(),
    )
}

fn file_map(entries: MapEntries) -> Value {
    Value::Map(Map::typed(Type::Named(&FILES), entries))
}

static FILES: Named = Named {
    name: "engine.files",
    underlying: Type::Map(&Type::Slice(&Type::Uint8)),
    methods: Some(&FilesMethods),
};

struct FilesMethods;

impl Methods for FilesMethods {
    fn method(&self, name: &str) -> Option<Signature> {
        match name {
            "Get" | "GetBytes" | "Glob" | "Lines" => Some(Signature::new(&[Type::String])),
            "AsConfig" | "AsSecrets" => Some(Signature::new(&[])),
            _ => None,
        }
    }

    fn call(
        &self,
        ctx: &Context<'_>,
        receiver: &Value,
        name: &str,
        args: &[Value],
    ) -> Result<Value, Failure> {
        let Value::Map(files) = receiver else { return Err(Failure::new("not files")) };
        let argument = match args.first() {
            Some(Value::String(text)) => text.clone(),
            _ => Str::default(),
        };
        let bytes = || match files.get_bytes(argument.as_bytes()) {
            Some(Value::Bytes(bytes)) => bytes,
            _ => Rc::default(),
        };
        match name {
            "Get" => Ok(Value::String(Str::from_bytes(&**bytes()))),
            "GetBytes" => Ok(Value::Bytes(bytes())),
            "Glob" => Ok(matching(files, &argument.to_lossy())),
            "Lines" => Ok(lines(&bytes())),
            "AsConfig" => by_name(ctx, files, |bytes| Value::String(Str::from_bytes(bytes))),
            _ => by_name(ctx, files, |bytes| Value::from(STANDARD.encode(bytes))),
        }
    }
}

fn matching(files: &Map, pattern: &str) -> Value {
    let expression = glob::compile(pattern);
    let wanted = |name: &Str| expression.as_ref().is_none_or(|e| e.is_match(&name.to_lossy()));
    file_map(
        files
            .entries()
            .iter()
            .filter(|(name, _)| wanted(name))
            .map(|(name, data)| (name.clone(), data.clone()))
            .collect(),
    )
}

fn lines(bytes: &[u8]) -> Value {
    if bytes.is_empty() {
        return Value::strings(Vec::<Str>::new());
    }
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    Value::strings(bytes.split(|b| *b == b'\n').map(Str::from))
}

/// A YAML mapping of the files' last names; of files with the same name the last one by path stays.
fn by_name(ctx: &Context<'_>, files: &Map, value: fn(&[u8]) -> Value) -> Result<Value, Failure> {
    let mut entries = MapEntries::new();
    for (path, data) in files.entries().iter() {
        let Value::Bytes(data) = data else { continue };
        let path = path.to_lossy();
        entries.insert(Str::from(path.rsplit('/').next().unwrap_or(&path)), value(data));
    }
    functions::to_yaml(ctx, &[Value::Map(Map::typed(Type::Map(&Type::String), entries))])
}

pub(super) fn capabilities(capabilities: &Capabilities, dialect: Dialect) -> Value {
    let package = match dialect {
        Dialect::Helm4 => ("*common.Capabilities", "common.KubeVersion", &VERSION_SET),
        Dialect::Helm3 => ("*chartutil.Capabilities", "chartutil.KubeVersion", &VERSION_SET_3),
    };
    let versions = capabilities.api_versions.iter().map(|v| Value::from(v.as_str())).collect();
    Value::object(CapabilitiesStruct {
        type_name: package.0,
        kube_version: Value::object(KubeVersionStruct {
            type_name: package.1,
            version: capabilities.kube_version.clone(),
            dialect,
            addressed: true,
        }),
        api_versions: Value::List(List::typed(Type::Named(package.2), versions)),
        helm_version: Value::object(HelmVersionStruct {
            version: capabilities.helm_version.clone(),
            dialect,
        }),
    })
}

/// API versions as templates see them: a list that knows what it [`Has`](https://helm.sh/docs/chart_template_guide/builtin_objects/).
pub fn api_versions<S: Into<Str>>(versions: impl IntoIterator<Item = S>) -> Value {
    let versions = versions.into_iter().map(|version| Value::String(version.into())).collect();
    Value::List(List::typed(Type::Named(&VERSION_SET), versions))
}

struct CapabilitiesStruct {
    type_name: &'static str,
    kube_version: Value,
    api_versions: Value,
    helm_version: Value,
}

impl Object for CapabilitiesStruct {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "KubeVersion" => Some(self.kube_version.clone()),
            "APIVersions" => Some(self.api_versions.clone()),
            "HelmVersion" => Some(self.helm_version.clone()),
            _ => None,
        }
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        // Printed as part of a struct, it has no address.
        let by_value = self.kube_version.downcast::<KubeVersionStruct>().and_then(Object::as_argument);
        vec![
            ("KubeVersion", by_value.unwrap_or_default()),
            ("APIVersions", self.api_versions.clone()),
            ("HelmVersion", self.helm_version.clone()),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Clone)]
struct KubeVersionStruct {
    type_name: &'static str,
    version: KubeVersion,
    dialect: Dialect,
    /// Whether it is still part of `.Capabilities`; its `String` method belongs to the pointer.
    addressed: bool,
}

impl KubeVersionStruct {
    fn string(&self) -> &str {
        match self.dialect {
            Dialect::Helm4 => self.version.normalized(),
            Dialect::Helm3 => &self.version.version,
        }
    }
}

impl Object for KubeVersionStruct {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "Version" => Some(Value::from(self.version.version.as_str())),
            "Major" => Some(Value::from(self.version.major.as_str())),
            "Minor" => Some(Value::from(self.version.minor.as_str())),
            _ => None,
        }
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let normalized = ("normalizedVersion", Value::from(self.version.normalized()));
        let mut fields = vec![("Version", Value::from(self.version.version.as_str()))];
        fields.extend((self.dialect == Dialect::Helm4).then_some(normalized));
        fields.push(("Major", Value::from(self.version.major.as_str())));
        fields.push(("Minor", Value::from(self.version.minor.as_str())));
        fields
    }

    fn as_argument(&self) -> Option<Value> {
        Some(Value::object(KubeVersionStruct { addressed: false, ..self.clone() }))
    }

    fn method(&self, name: &str) -> Option<Signature> {
        (self.addressed && matches!(name, "String" | "GitVersion")).then(|| Signature::new(&[]))
    }

    fn call(&self, _: &Context<'_>, name: &str, _: &[Value]) -> Result<Value, Failure> {
        Ok(Value::from(if name == "String" { self.string() } else { &self.version.version }))
    }

    fn text(&self) -> Option<String> {
        self.addressed.then(|| self.string().to_owned())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct HelmVersionStruct {
    version: HelmVersion,
    dialect: Dialect,
}

impl Object for HelmVersionStruct {
    fn type_name(&self) -> &'static str {
        "version.BuildInfo"
    }

    fn field(&self, name: &str) -> Option<Value> {
        self.fields().into_iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let v = &self.version;
        let mut fields = vec![
            ("Version", Value::from(v.version.as_str())),
            ("GitCommit", Value::from(v.git_commit.as_str())),
            ("GitTreeState", Value::from(v.git_tree_state.as_str())),
            ("GoVersion", Value::from(v.go_version.as_str())),
        ];
        if self.dialect == Dialect::Helm4 {
            fields.push(("KubeClientVersion", Value::from(v.kube_client_version.as_str())));
        }
        fields
    }

    fn json_fields(&self) -> Vec<(&'static str, Value)> {
        const NAMES: [&str; 5] =
            ["version", "git_commit", "git_tree_state", "go_version", "kube_client_version"];
        let tagged = NAMES.into_iter().zip(self.fields()).map(|(name, (_, value))| (name, value));
        tagged.filter(|(name, value)| *name == "kube_client_version" || value.truth()).collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

static VERSION_SET: Named = Named {
    name: "common.VersionSet",
    underlying: Type::Slice(&Type::String),
    methods: Some(&VersionSetMethods),
};
static VERSION_SET_3: Named = Named {
    name: "chartutil.VersionSet",
    underlying: Type::Slice(&Type::String),
    methods: Some(&VersionSetMethods),
};

struct VersionSetMethods;

impl Methods for VersionSetMethods {
    fn method(&self, name: &str) -> Option<Signature> {
        (name == "Has").then(|| Signature::new(&[Type::String]))
    }

    fn call(&self, _: &Context<'_>, receiver: &Value, _: &str, args: &[Value]) -> Result<Value, Failure> {
        let wanted = args.first().and_then(Value::as_str);
        let has = receiver.as_list().is_some_and(|versions| versions.iter().any(|v| v.as_str() == wanted));
        Ok(Value::Bool(has))
    }
}

static VALUES: Named = Named { name: "common.Values", underlying: Type::MAP, methods: Some(&ValuesMethods) };
static VALUES_3: Named =
    Named { name: "chartutil.Values", underlying: Type::MAP, methods: Some(&ValuesMethods) };

struct ValuesMethods;

impl Methods for ValuesMethods {
    fn method(&self, name: &str) -> Option<Signature> {
        match name {
            "YAML" | "AsMap" => Some(Signature::new(&[])),
            "Table" | "PathValue" => Some(Signature::new(&[Type::String])),
            _ => None,
        }
    }

    fn call(
        &self,
        ctx: &Context<'_>,
        receiver: &Value,
        name: &str,
        args: &[Value],
    ) -> Result<Value, Failure> {
        let Value::Map(values) = receiver else { return Err(Failure::new("not values")) };
        let path = args.first().and_then(Value::as_str).unwrap_or_default();
        match name {
            // A copy, since a map here has one type only; what is set in it later is not seen in `.Values`.
            "AsMap" => Ok(Value::Map(Map::from_entries(values.snapshot()))),
            "YAML" => match functions::to_yaml(ctx, std::slice::from_ref(receiver))? {
                Value::String(text) => Ok(Value::from(format!("{text}\n"))),
                other => Ok(other),
            },
            "Table" => table_at(values, path).map(Value::Map).ok_or_else(|| {
                Failure::new(format!(
                    "{} is not a table",
                    crate::quote::go_quote(path.rsplit('.').next().unwrap_or(path))
                ))
            }),
            _ if path.is_empty() => Err(Failure::new("YAML path cannot be empty")),
            _ => match path_value(values, path) {
                Lookup::Found(value) => Ok(value),
                Lookup::Missing => Err(Failure::new(format!(
                    "{} is not a value",
                    crate::quote::go_quote(path.rsplit('.').next().unwrap_or(path))
                ))),
            },
        }
    }
}
