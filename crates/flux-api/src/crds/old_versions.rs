//! Older apiVersions that users still have in Git. They are the stored version's schema, so that whatever is accepted can be stored, plus
//! the fields that version had and the stored one has not. Those are there only to be refused with a sentence that names what to write
//! instead: Kubernetes would otherwise drop them in silence, and something other than what Git says would be applied.

use serde_json::{Value, json};

use crate::kinds::{self, Kind};

/// A field that is gone.
struct Removed {
    /// Where it was: the path of the object that held it, `[]` for the items of a list.
    parent: &'static [&'static str],
    field: &'static str,
    holds: Holds,
    /// What to write instead.
    instead: &'static str,
}

enum Holds {
    Text,
    Object,
    Objects,
}

const ACCESS_FROM: Removed = Removed {
    parent: &["spec"],
    field: "accessFrom",
    holds: Holds::Object,
    instead: "remove it, it never had an effect",
};

const KUSTOMIZATION: &[Removed] = &[
    Removed {
        parent: &["spec"],
        field: "patchesStrategicMerge",
        holds: Holds::Objects,
        instead: "write each patch as text in spec.patches[].patch",
    },
    Removed {
        parent: &["spec"],
        field: "patchesJson6902",
        holds: Holds::Objects,
        instead: "write each patch as text in spec.patches[].patch, with its target",
    },
    Removed {
        parent: &["spec"],
        field: "validation",
        holds: Holds::Text,
        instead: "remove it, the API server validates every object before it is applied",
    },
];

const POST_RENDERER: &[&str] = &["spec", "postRenderers", "[]", "kustomize"];

const HELM_RELEASE: &[Removed] = &[
    Removed {
        parent: &["spec", "chart", "spec"],
        field: "valuesFile",
        holds: Holds::Text,
        instead: "write it as the first entry of valuesFiles",
    },
    Removed {
        parent: POST_RENDERER,
        field: "patchesStrategicMerge",
        holds: Holds::Objects,
        instead: "write each patch as text in patches[].patch",
    },
    Removed {
        parent: POST_RENDERER,
        field: "patchesJson6902",
        holds: Holds::Objects,
        instead: "write each patch as text in patches[].patch, with its target",
    },
];

const GIT_REPOSITORY: &[Removed] = &[
    Removed {
        parent: &["spec"],
        field: "gitImplementation",
        holds: Holds::Text,
        instead: "remove it, there is one implementation",
    },
    ACCESS_FROM,
];

const BUCKET: &[Removed] = &[ACCESS_FROM];

const HELM_CHART: &[Removed] = &[
    Removed {
        parent: &["spec"],
        field: "valuesFile",
        holds: Holds::Text,
        instead: "write it as the first entry of spec.valuesFiles",
    },
    ACCESS_FROM,
];

fn removed(kind: &Kind) -> &'static [Removed] {
    match *kind {
        kinds::KUSTOMIZATION => KUSTOMIZATION,
        kinds::HELM_RELEASE => HELM_RELEASE,
        kinds::GIT_REPOSITORY => GIT_REPOSITORY,
        kinds::BUCKET => BUCKET,
        kinds::HELM_CHART => HELM_CHART,
        // The others lost nothing but status fields, which nobody keeps in Git.
        _ => &[],
    }
}

/// Alert and Provider had a status once.
pub(super) fn had_status(kind: &Kind) -> bool {
    !kind.has_status
}

/// The schema of an older version, from that of the stored one.
pub(super) fn schema(kind: &Kind, mut stored: Value) -> Value {
    for field in removed(kind) {
        refuse(&mut stored, field);
    }
    if had_status(kind) {
        stored["properties"]["status"] = json!({
            "description": "No longer kept.",
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
        });
    }
    stored
}

fn refuse(schema: &mut Value, field: &Removed) {
    let mut parent = schema;
    for step in field.parent {
        parent = match *step {
            "[]" => &mut parent["items"],
            name => &mut parent["properties"][name],
        };
    }
    let mut declared = match field.holds {
        Holds::Text => json!({ "type": "string" }),
        Holds::Object => json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
        Holds::Objects => json!({
            "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "type": "array",
        }),
    };
    declared["description"] = json!(format!("No longer supported: {}.", field.instead));
    parent["properties"][field.field] = declared;
    let rule = json!({
        "fieldPath": format!(".{}", field.field),
        "message": format!("{} is no longer supported: {}", field.field, field.instead),
        "reason": "FieldValueForbidden",
        "rule": format!("!has(self.{})", field.field),
    });
    match &mut parent["x-kubernetes-validations"] {
        Value::Array(rules) => rules.push(rule),
        none => *none = json!([rule]),
    }
}
