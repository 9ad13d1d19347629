//! What makes a spec and a status a Kubernetes object: the struct around them, how it is read and written, and the traits of `kube`.

use serde::de::DeserializeOwned;

use crate::condition::Condition;
use crate::kinds::Kind;

/// Any Flux object, for code that is the same for every kind.
pub trait Object: kube_core::Resource<DynamicType = ()> + Clone + DeserializeOwned {
    /// Its row in the table of kinds.
    const KIND: &'static Kind;

    /// `metadata.namespace`, or nothing.
    fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    /// `metadata.name`, or nothing.
    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// `metadata.generation`, or 0.
    fn generation(&self) -> i64 {
        self.meta().generation.unwrap_or_default()
    }

    /// Whether it is being deleted.
    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// `spec.suspend`.
    fn suspended(&self) -> bool;

    /// `status.conditions`, none where there is no status.
    fn conditions(&self) -> &[Condition];

    /// `status.observedGeneration`; `None` where the status is missing or the kind does not record it.
    fn observed_generation(&self) -> Option<i64>;

    /// `status.lastHandledReconcileAt`.
    fn last_handled_reconcile_at(&self) -> Option<&str>;
}

/// Defines a kind from its spec and, where it has one, its status.
macro_rules! object {
    ($kind:ident, $row:expr, $spec:ty, $status:ty) => {
        #[doc = concat!("A ", stringify!($kind), ".")]
        #[derive(Debug, Clone, PartialEq, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $kind {
            /// Name, namespace, labels, annotations and what the API server keeps about the object.
            #[serde(default)]
            pub metadata: kube_core::ObjectMeta,
            /// What is wanted.
            pub spec: $spec,
            /// What was seen and done; written by the controller.
            #[serde(default)]
            pub status: Option<$status>,
        }

        impl $kind {
            /// A new object without status.
            pub fn new(name: &str, spec: $spec) -> Self {
                let metadata = kube_core::ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
                $kind { metadata, spec, status: None }
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let fields = 4 + usize::from(self.status.is_some());
                let mut object = serializer.serialize_struct(stringify!($kind), fields)?;
                object
                    .serialize_field("apiVersion", &<$kind as crate::object::Object>::KIND.api_version())?;
                object.serialize_field("kind", stringify!($kind))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                if let Some(status) = &self.status {
                    object.serialize_field("status", status)?;
                }
                object.end()
            }
        }

        crate::object::resource!($kind, $row);

        impl kube_core::object::HasSpec for $kind {
            type Spec = $spec;

            fn spec(&self) -> &$spec {
                &self.spec
            }

            fn spec_mut(&mut self) -> &mut $spec {
                &mut self.spec
            }
        }

        impl kube_core::object::HasStatus for $kind {
            type Status = $status;

            fn status(&self) -> Option<&$status> {
                self.status.as_ref()
            }

            fn status_mut(&mut self) -> &mut Option<$status> {
                &mut self.status
            }
        }
    };
}

/// The part of [`object`] that kinds without status share.
macro_rules! resource {
    ($kind:ident, $row:expr) => {
        impl kube_core::Resource for $kind {
            type DynamicType = ();
            type Scope = kube_core::NamespaceResourceScope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                $row.kind.into()
            }

            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                $row.group.into()
            }

            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                $row.version.into()
            }

            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                $row.plural.into()
            }

            fn meta(&self) -> &kube_core::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut kube_core::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use {object, resource};

/// [`Object`] for a kind whose spec has `suspend` and whose status has the usual four fields.
macro_rules! standard_object {
    ($kind:ident, $row:expr) => {
        impl crate::object::Object for $kind {
            const KIND: &'static crate::kinds::Kind = &$row;

            fn suspended(&self) -> bool {
                self.spec.suspend
            }

            fn conditions(&self) -> &[crate::condition::Condition] {
                self.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
            }

            fn observed_generation(&self) -> Option<i64> {
                self.status.as_ref().map(|status| status.observed_generation)
            }

            fn last_handled_reconcile_at(&self) -> Option<&str> {
                self.status.as_ref()?.last_handled_reconcile_at.as_deref()
            }
        }
    };
}

pub(crate) use standard_object;

/// Defines a kind that has only a spec.
macro_rules! stateless_object {
    ($kind:ident, $row:expr, $spec:ty) => {
        #[doc = concat!("A ", stringify!($kind), ".")]
        #[derive(Debug, Clone, PartialEq, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $kind {
            /// Name, namespace, labels, annotations and what the API server keeps about the object.
            #[serde(default)]
            pub metadata: kube_core::ObjectMeta,
            /// What is wanted.
            pub spec: $spec,
        }

        impl $kind {
            /// A new object.
            pub fn new(name: &str, spec: $spec) -> Self {
                let metadata = kube_core::ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
                $kind { metadata, spec }
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let mut object = serializer.serialize_struct(stringify!($kind), 4)?;
                object
                    .serialize_field("apiVersion", &<$kind as crate::object::Object>::KIND.api_version())?;
                object.serialize_field("kind", stringify!($kind))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                object.end()
            }
        }

        crate::object::resource!($kind, $row);

        impl kube_core::object::HasSpec for $kind {
            type Spec = $spec;

            fn spec(&self) -> &$spec {
                &self.spec
            }

            fn spec_mut(&mut self) -> &mut $spec {
                &mut self.spec
            }
        }

        impl crate::object::Object for $kind {
            const KIND: &'static crate::kinds::Kind = &$row;

            fn suspended(&self) -> bool {
                self.spec.suspend
            }

            fn conditions(&self) -> &[crate::condition::Condition] {
                &[]
            }

            fn observed_generation(&self) -> Option<i64> {
                None
            }

            fn last_handled_reconcile_at(&self) -> Option<&str> {
                None
            }
        }
    };
}

pub(crate) use stateless_object;
