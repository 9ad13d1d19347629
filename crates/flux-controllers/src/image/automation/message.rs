//! The commit message: a Go template over what was changed, with sprig's functions that always give the same.
//!
//! `.Updated` and `.Changed.ImageResult`, which upstream has dropped, still render unless upstream is followed to the
//! letter.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use flux_api::image::ImageReference;
use gotemplate::{
    Context, Failure, Functions, Host, Limits, List, Map, MapEntries, Named, Object, Session, Set, Signature,
    Str, Type, Value, show,
};
use jiff::Timestamp;

use crate::image::scan;
use crate::image::setters::{Change, Changes, ObjectId, Setters};

pub const DEFAULT: &str = "Update from image update automation";
/// What a message may cost: a template that never ends is stopped.
const LIMITS: Limits = Limits {
    steps: 1_000_000,
    depth: 1_000,
    value_bytes: 1 << 20,
    live_bytes: 16 << 20,
    small_bytes: 16 << 20,
};
/// Functions of sprig whose answer depends on where and when they are called.
const NOT_HERMETIC: &[&str] = &[
    "date",
    "date_in_zone",
    "date_modify",
    "now",
    "htmlDate",
    "htmlDateInZone",
    "dateInZone",
    "dateModify",
    "randAlphaNum",
    "randAlpha",
    "randAscii",
    "randNumeric",
    "randBytes",
    "randInt",
    "uuidv4",
    "env",
    "expandenv",
    "getHostByName",
];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "template uses removed '{field}' field. Please use {instead} instead. See: https://fluxcd.io/flux/components/image/imageupdateautomations/#message-template"
    )]
    Removed { field: &'static str, instead: &'static str },
    #[error("unable to create commit message template from spec: {0}")]
    Parse(String),
    #[error("failed to run template from spec: {0}")]
    Run(String),
}

/// What a message is made of.
pub struct Message<'a> {
    pub template: Option<&'a str>,
    pub values: &'a BTreeMap<String, String>,
    pub namespace: &'a str,
    pub name: &'a str,
    pub changes: &'a Changes,
    pub setters: &'a Setters,
    /// Removed fields fail, as they do upstream.
    pub upstream_only: bool,
}

impl Message<'_> {
    pub fn render(&self) -> Result<String, Error> {
        let template = self.template.filter(|text| !text.is_empty()).unwrap_or(DEFAULT);
        let mut set = Set::new(Functions::sprig().without(NOT_HERMETIC).shared());
        set.parse("commit message", template).map_err(|error| Error::Parse(error.to_string()))?;
        let session = Session::new(&Still, LIMITS);
        let rendered = Arc::new(set).execute(&session, "commit message", &self.data());
        rendered
            .map_err(|error| removed(&error.to_string()))
            .map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    fn data(&self) -> Value {
        let values = self.values.iter();
        let values: MapEntries =
            values.map(|(key, value)| (Str::from(key), Value::from(value.as_str()))).collect();
        let mut fields = vec![
            ("AutomationObject", named(self.namespace, self.name)),
            ("Changed", self.changed()),
            ("Values", Value::Map(Map::typed(Type::Map(&Type::String), values))),
        ];
        if !self.upstream_only {
            fields.push(("Updated", self.updated()));
        }
        Struct { fields, ..Struct::of("source.TemplateData") }.value()
    }

    fn changed(&self) -> Value {
        let files = self.changes.files.iter();
        let files = files.map(|(path, objects)| (Str::from(path), object_changes(objects))).collect();
        let mut fields = Vec::new();
        if !self.upstream_only {
            fields.push(("ImageResult", self.updated()));
        }
        fields.push(("FileChanges", Value::Map(Map::typed(Type::Map(&OBJECT_CHANGES), files))));
        let methods = vec![
            ("Objects", object_changes(&self.changes.objects())),
            ("Changes", list(self.changes.distinct().iter().map(change).collect())),
        ];
        Struct { fields, methods, ..Struct::of("update.Result") }.value()
    }

    /// The result as it was before there was `.Changed`: files, objects and images.
    fn updated(&self) -> Value {
        let images = |changes: &[Change]| {
            let markers = changes.iter().filter_map(|one| self.setters.image(&one.setter));
            let mut seen = BTreeSet::new();
            let distinct = markers.filter(|(policy, _)| seen.insert((*policy).to_owned()));
            list(distinct.map(|(policy, image)| image_ref(policy, image)).collect())
        };
        let objects = |objects: &BTreeMap<ObjectId, Vec<Change>>| {
            object_map(objects.iter().map(|(object, changes)| (object_id(object), images(changes))).collect())
        };
        let file = |(path, all): (&String, &BTreeMap<ObjectId, Vec<Change>>)| {
            let fields = vec![("Objects", objects(all))];
            (Str::from(path), Struct { fields, ..Struct::of("update.FileResult") }.value())
        };
        let files = Map::typed(Type::Map(&Type::Any), self.changes.files.iter().map(file).collect());
        let methods =
            vec![("Images", images(&self.changes.distinct())), ("Objects", objects(&self.changes.objects()))];
        Struct { fields: vec![("Files", Value::Map(files))], methods, ..Struct::of("update.Result") }.value()
    }
}

fn removed(error: &str) -> Error {
    if error.contains("can't evaluate field Updated in type source.TemplateData") {
        return Error::Removed { field: ".Updated", instead: "'.Changed'" };
    }
    if error.contains("can't evaluate field ImageResult in type update.Result") {
        let instead = "'.Changed.FileChanges' or '.Changed.Objects'";
        return Error::Removed { field: ".Changed.ImageResult", instead };
    }
    Error::Run(error.to_owned())
}

static OBJECT_CHANGES: Type =
    Type::Named(&Named { name: "update.ObjectChanges", underlying: Type::Map(&Type::Any), methods: None });

fn list(items: Vec<Value>) -> Value {
    Value::List(List::typed(Type::Slice(&Type::Any), items))
}

fn named(namespace: &str, name: &str) -> Value {
    let text = format!("{namespace}/{name}");
    let fields = vec![("Namespace", Value::from(namespace)), ("Name", Value::from(name))];
    let methods = vec![("String", Value::from(text.as_str()))];
    Struct { fields, methods, text: Some(text), ..Struct::of("types.NamespacedName") }.value()
}

fn object_changes(objects: &BTreeMap<ObjectId, Vec<Change>>) -> Value {
    let entry = |(object, changes): (&ObjectId, &Vec<Change>)| {
        (object_id(object), list(changes.iter().map(change).collect()))
    };
    object_map(objects.iter().map(entry).collect())
}

/// A Go map whose keys are structs.
fn object_map(entries: Vec<(Value, Value)>) -> Value {
    let shown: Vec<String> =
        entries.iter().map(|(key, value)| format!("{}:{}", show(key), show(value))).collect();
    let text = Some(format!("map[{}]", shown.join(" ")));
    Struct { entries: Some(entries), text, ..Struct::of("update.ObjectChanges") }.value()
}

fn object_id(object: &ObjectId) -> Value {
    let text = |text: &str| Value::from(text);
    let types = vec![("APIVersion", text(&object.api_version)), ("Kind", text(&object.kind))];
    let names = vec![("Name", text(&object.name)), ("Namespace", text(&object.namespace))];
    let promoted: Vec<_> = types.iter().chain(&names).cloned().collect();
    let methods = vec![
        ("GetAPIVersion", text(&object.api_version)),
        ("GetKind", text(&object.kind)),
        ("GetName", text(&object.name)),
        ("GetNamespace", text(&object.namespace)),
    ];
    let inner = vec![
        ("TypeMeta", Struct { fields: types, ..Struct::of("yaml.TypeMeta") }.value()),
        ("NameMeta", Struct { fields: names, ..Struct::of("yaml.NameMeta") }.value()),
    ];
    let identifier = Struct { fields: inner, ..Struct::of("yaml.ResourceIdentifier") }.value();
    let fields = vec![("ResourceIdentifier", identifier)];
    Struct { fields, promoted, methods, ..Struct::of("update.ObjectIdentifier") }.value()
}

fn change(change: &Change) -> Value {
    let text = |text: &str| Value::from(text);
    let fields = vec![
        ("OldValue", text(&change.old_value)),
        ("NewValue", text(&change.new_value)),
        ("Setter", text(&change.setter)),
    ];
    Struct { fields, ..Struct::of("update.Change") }.value()
}

fn image_ref(policy: &str, image: &ImageReference) -> Value {
    let shown = image.to_string();
    let repository = scan::image(&image.name, true);
    let (registry, path) = repository
        .map(|repository| (repository.registry().to_owned(), repository.name().to_owned()))
        .unwrap_or_default();
    let identifier = image.digest.clone().unwrap_or_else(|| image.tag.clone());
    let separator = if image.digest.is_some() { '@' } else { ':' };
    let name = format!("{registry}/{path}{separator}{identifier}");
    let (namespace, policy) = policy.split_once(':').unwrap_or_default();
    let methods = vec![
        ("String", Value::from(shown.as_str())),
        ("Identifier", Value::from(identifier.as_str())),
        ("Repository", Value::from(path.as_str())),
        ("Registry", Value::from(registry.as_str())),
        ("Name", Value::from(name.as_str())),
        ("Policy", named(namespace, policy)),
    ];
    Struct { methods, text: Some(shown), ..Struct::of("update.imageRef") }.value()
}

/// Any of the Go structs above.
struct Struct {
    type_name: &'static str,
    fields: Vec<(&'static str, Value)>,
    /// Fields of embedded structs.
    promoted: Vec<(&'static str, Value)>,
    /// Methods without parameters, with their answers.
    methods: Vec<(&'static str, Value)>,
    text: Option<String>,
    entries: Option<Vec<(Value, Value)>>,
}

impl Struct {
    fn of(type_name: &'static str) -> Self {
        let (fields, promoted, methods) = (Vec::new(), Vec::new(), Vec::new());
        Self { type_name, fields, promoted, methods, text: None, entries: None }
    }

    fn value(self) -> Value {
        Value::Object(Rc::new(self))
    }
}

impl Object for Struct {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn field(&self, name: &str) -> Option<Value> {
        let mut all = self.fields.iter().chain(&self.promoted);
        all.find(|(field, _)| *field == name).map(|(_, value)| value.clone())
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        self.fields.clone()
    }

    fn method(&self, name: &str) -> Option<Signature> {
        self.methods.iter().any(|(method, _)| *method == name).then_some(Signature::new(&[]))
    }

    fn call(&self, _ctx: &Context<'_>, name: &str, _args: &[Value]) -> Result<Value, Failure> {
        let found = self.methods.iter().find(|(method, _)| *method == name);
        found.map(|(_, value)| value.clone()).ok_or_else(|| Failure::new(format!("no method {name}")))
    }

    fn entries(&self) -> Option<Vec<(Value, Value)>> {
        self.entries.clone()
    }

    fn text(&self) -> Option<String> {
        self.text.clone()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// No clock and no network: the functions that would ask for them are not there. Keys are made of real chance.
struct Still;

impl Host for Still {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn random(&self, buffer: &mut [u8]) {
        rand::fill(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str, upstream_only: bool) -> Result<String, Error> {
        let image = ImageReference { name: "ghcr.io/org/app".into(), tag: "v2".into(), digest: None };
        let setters = Setters::new("flux", &BTreeMap::from([("app".to_owned(), image)])).unwrap();
        let object = |kind: &str, name: &str| ObjectId {
            api_version: "apps/v1".into(),
            kind: kind.into(),
            name: name.into(),
            namespace: "shop".into(),
        };
        let change = |old: &str, new: &str, setter: &str| Change {
            old_value: old.into(),
            new_value: new.into(),
            setter: setter.into(),
        };
        let mut changes = Changes::default();
        changes.add("b.yaml", object("Deployment", "web"), change("v1", "v2", "flux:app:tag"));
        changes.add("b.yaml", object("Deployment", "web"), change("x", "ghcr.io/org/app", "flux:app:name"));
        changes.add("a.yaml", object("CronJob", "job"), change("v1", "v2", "flux:app:tag"));
        let values = BTreeMap::from([("cluster".to_owned(), "prod".to_owned())]);
        let message = Message {
            template: Some(template),
            values: &values,
            namespace: "flux",
            name: "auto",
            changes: &changes,
            setters: &setters,
            upstream_only,
        };
        message.render()
    }

    fn text(template: &str) -> String {
        rendered(template, true).unwrap_or_else(|error| panic!("{template}: {error}"))
    }

    #[test]
    fn the_template_of_upstreams_documents_renders() {
        let template = "Automated image update\n\nAutomation name: {{ .AutomationObject }}\n\nFiles:\n{{ range $filename, $_ := .Changed.FileChanges -}}\n- {{ $filename }}\n{{ end -}}\n\nObjects:\n{{ range $resource, $changes := .Changed.Objects -}}\n- {{ $resource.Kind }} {{ $resource.Name }}\n  Changes:\n{{- range $_, $change := $changes }}\n    - {{ $change.OldValue }} -> {{ $change.NewValue }}\n{{ end -}}\n{{ end -}}\n";
        let expected = "Automated image update\n\nAutomation name: flux/auto\n\nFiles:\n- a.yaml\n- b.yaml\nObjects:\n- CronJob job\n  Changes:\n    - v1 -> v2\n- Deployment web\n  Changes:\n    - v1 -> v2\n\n    - x -> ghcr.io/org/app\n";
        assert_eq!(text(template), expected);
    }

    #[test]
    fn everything_of_upstreams_data_can_be_reached() {
        for (template, expected) in [
            ("{{ .AutomationObject.Namespace }}-{{ .AutomationObject.Name }}", "flux-auto"),
            ("{{ .Values.cluster | upper }}{{ .Values.none }}", "PROD<no value>"),
            ("{{ len .Changed.FileChanges }} {{ len .Changed.Objects }} {{ len .Changed.Changes }}", "2 2 2"),
            (
                "{{ range .Changed.Changes }}{{ .Setter }}={{ .NewValue }};{{ end }}",
                "flux:app:tag=v2;flux:app:name=ghcr.io/org/app;",
            ),
            (
                "{{ range $id, $_ := .Changed.Objects }}{{ $id.APIVersion }}/{{ $id.Namespace }}/{{ $id.GetName }} {{ end }}",
                "apps/v1/shop/job apps/v1/shop/web ",
            ),
            (
                "{{ range $f, $objects := .Changed.FileChanges }}{{ range $id, $c := $objects }}{{ $f }}:{{ $id.Name }}:{{ len $c }} {{ end }}{{ end }}",
                "a.yaml:job:1 b.yaml:web:2 ",
            ),
            ("{{ range .Changed.Changes }}{{ . }}{{ break }}{{ end }}", "{v1 v2 flux:app:tag}"),
            (
                "{{ range $id, $_ := .Changed.Objects }}{{ $id }}{{ break }}{{ end }}",
                "{{{apps/v1 CronJob} {job shop}}}",
            ),
            ("{{ if .Changed.Objects }}some{{ end }}", "some"),
        ] {
            assert_eq!(text(template), expected, "{template}");
        }
        assert_eq!(text(""), "Update from image update automation");
    }

    #[test]
    fn removed_fields_render_unless_upstream_is_followed_to_the_letter() {
        let old = "{{ range .Updated.Images }}{{ println . }}{{ end }}";
        assert_eq!(rendered(old, false).unwrap(), "ghcr.io/org/app:v2\n");
        let files = "{{ range $f, $r := .Updated.Files }}{{ $f }}:{{ range $o, $i := $r.Objects }}{{ $o.Kind }}={{ index $i 0 }};{{ end }}{{ end }}";
        assert_eq!(
            rendered(files, false).unwrap(),
            "a.yaml:CronJob=ghcr.io/org/app:v2;b.yaml:Deployment=ghcr.io/org/app:v2;"
        );
        let parts = "{{ range .Updated.Images }}{{ .Registry }} {{ .Repository }} {{ .Identifier }} {{ .Policy.Name }} {{ .Name }}{{ end }}";
        assert_eq!(rendered(parts, false).unwrap(), "ghcr.io org/app v2 app ghcr.io/org/app:v2");
        assert_eq!(
            rendered("{{ range .Changed.ImageResult.Images }}{{ . }}{{ end }}", false).unwrap(),
            "ghcr.io/org/app:v2"
        );
        let error = rendered(old, true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "template uses removed '.Updated' field. Please use '.Changed' instead. See: https://fluxcd.io/flux/components/image/imageupdateautomations/#message-template"
        );
        let error = rendered("{{ .Changed.ImageResult }}", true).unwrap_err();
        assert!(matches!(error, Error::Removed { field: ".Changed.ImageResult", .. }), "{error}");
    }

    #[test]
    fn a_template_that_asks_for_the_world_or_never_ends_fails() {
        for template in ["{{ now }}", "{{ env \"HOME\" }}", "{{ getHostByName \"x\" }}", "{{ uuidv4 }}"] {
            assert!(matches!(rendered(template, false), Err(Error::Parse(_))), "{template}");
        }
        let endless = "{{ define \"x\" }}{{ template \"x\" . }}{{ end }}{{ template \"x\" . }}";
        assert!(matches!(rendered(endless, false), Err(Error::Run(_))));
        let long = "{{ range until 100000 }}{{ range until 100000 }}x{{ end }}{{ end }}";
        assert!(matches!(rendered(long, false), Err(Error::Run(_))));
        let large = "{{ repeat 1000000000 \"x\" }}";
        assert!(matches!(rendered(large, false), Err(Error::Run(_))));
        assert!(matches!(rendered("{{ .Nope }}", false), Err(Error::Run(_))));
        assert!(matches!(rendered("{{ if }}", false), Err(Error::Parse(_))));
    }
}
