//! Which fields of which kinds each transformer touches: the builtin table, and what `configurations` and
//! `crds` add to it.

mod crds;
mod defaults;
mod visit;

pub(crate) use crds::from_crds;
pub(crate) use visit::{Create, VisitError, Visitor};

use std::rc::Rc;

use crate::error::{Class, Error};
use crate::id::Gvk;
use crate::kustomization::FieldSpec;
use crate::kustomization::decode::{Decoder, FromGo, go_struct};
use crate::load::Loader;

go_struct! {
    /// Names of one kind stand in these fields of others.
    "NameBackReferences" struct NameReference {
        group: String = "group" in "Gvk.group",
        version: String = "version" in "Gvk.version",
        kind: String = "kind" in "Gvk.kind",
        referrers: Vec<FieldSpec> = "fieldSpecs",
    }
}

impl NameReference {
    pub(crate) fn gvk(&self) -> Gvk {
        Gvk::plain(&self.group, &self.version, &self.kind)
    }
}

go_struct! {
    "TransformerConfig" struct Specs {
        name_prefix: Vec<FieldSpec> = "namePrefix",
        name_suffix: Vec<FieldSpec> = "nameSuffix",
        namespace: Vec<FieldSpec> = "namespace",
        common_labels: Vec<FieldSpec> = "commonLabels",
        labels: Vec<FieldSpec> = "labels",
        template_labels: Vec<FieldSpec> = "templateLabels",
        common_annotations: Vec<FieldSpec> = "commonAnnotations",
        name_reference: Vec<NameReference> = "nameReference",
        var_reference: Vec<FieldSpec> = "varReference",
        images: Vec<FieldSpec> = "images",
        replicas: Vec<FieldSpec> = "replicas",
    }
}

/// A table of field specs. Almost every layer of a build has just the builtin one, so that is kept apart:
/// merging it with itself, once per layer, costs nothing.
#[derive(Clone, Debug, Default)]
pub(crate) enum FieldSpecs {
    #[default]
    Empty,
    Builtin,
    Own(Rc<Specs>),
}

static NONE: Specs = Specs {
    name_prefix: Vec::new(),
    name_suffix: Vec::new(),
    namespace: Vec::new(),
    common_labels: Vec::new(),
    labels: Vec::new(),
    template_labels: Vec::new(),
    common_annotations: Vec::new(),
    name_reference: Vec::new(),
    var_reference: Vec::new(),
    images: Vec::new(),
    replicas: Vec::new(),
};

impl std::ops::Deref for FieldSpecs {
    type Target = Specs;

    fn deref(&self) -> &Specs {
        match self {
            Self::Empty => &NONE,
            Self::Builtin => defaults::builtin(),
            Self::Own(specs) => specs,
        }
    }
}

impl FieldSpecs {
    /// The builtin table, with what the files under `configurations` add.
    pub(crate) fn load(loader: &Loader<'_>, configurations: &[String]) -> Result<Self, Error> {
        let mut own = Self::Empty;
        for path in configurations {
            let content = loader.load(path)?;
            let mut read: Specs = read_strict(&content)?;
            read.sort();
            own = own.merge(&Self::Own(Rc::new(read)))?;
        }
        Self::Builtin.merge(&own)
    }

    pub(crate) fn merge(&self, other: &Self) -> Result<Self, Error> {
        match (self, other) {
            (_, Self::Empty) => Ok(self.clone()),
            (Self::Empty | Self::Builtin, Self::Builtin) => Ok(Self::Builtin),
            (_, other) => Ok(Self::Own(Rc::new(self.merged(other)?))),
        }
    }
}

fn read_strict<T: FromGo>(content: &[u8]) -> Result<T, Error> {
    let config = |text: String| Error::new(Class::Config, text);
    let json = crate::yaml_text::to_json_strict(content)
        .map_err(|error| config(format!("error converting YAML to JSON: {error}")))?;
    Decoder::strict_fields(&json)
        .map_err(|error| config(format!("error unmarshaling JSON: while decoding JSON: {error}")))
}

impl Specs {
    fn merged(&self, other: &Self) -> Result<Self, Error> {
        let each = |name: &str, own: &[FieldSpec], others: &[FieldSpec]| {
            merge_specs(own, others)
                .map_err(|error| error.context(format!("failed to merge {name} fieldSpec")))
        };
        let mut merged = Self {
            name_prefix: each("NamePrefix", &self.name_prefix, &other.name_prefix)?,
            name_suffix: each("NameSuffix", &self.name_suffix, &other.name_suffix)?,
            namespace: each("NameSpace", &self.namespace, &other.namespace)?,
            common_annotations: each(
                "CommonAnnotations",
                &self.common_annotations,
                &other.common_annotations,
            )?,
            common_labels: each("CommonLabels", &self.common_labels, &other.common_labels)?,
            labels: each("Labels", &self.labels, &other.labels)?,
            template_labels: each("TemplateLabels", &self.template_labels, &other.template_labels)?,
            var_reference: each("VarReference", &self.var_reference, &other.var_reference)?,
            name_reference: merge_references(&self.name_reference, &other.name_reference)
                .map_err(|error| error.context("failed to merge NameReference fieldSpec"))?,
            images: each("Images", &self.images, &other.images)?,
            replicas: each("Replicas", &self.replicas, &other.replicas)?,
        };
        merged.sort();
        Ok(merged)
    }

    fn sort(&mut self) {
        for specs in [
            &mut self.name_prefix,
            &mut self.name_suffix,
            &mut self.namespace,
            &mut self.common_labels,
            &mut self.labels,
            &mut self.template_labels,
            &mut self.common_annotations,
            &mut self.var_reference,
            &mut self.images,
            &mut self.replicas,
        ] {
            specs.sort_by(|a, b| a.gvk().order(&b.gvk()));
        }
        self.name_reference.sort_by(|a, b| a.gvk().order(&b.gvk()));
    }
}

/// `own` with those of `others` that it does not have yet.
pub(crate) fn merge_specs(own: &[FieldSpec], others: &[FieldSpec]) -> Result<Vec<FieldSpec>, Error> {
    let mut merged = own.to_vec();
    for other in others {
        merge_spec(&mut merged, other)?;
    }
    Ok(merged)
}

pub(crate) fn merge_spec(specs: &mut Vec<FieldSpec>, other: &FieldSpec) -> Result<(), Error> {
    // The spec that is there counts as the same when the new one is equally or less specific.
    let gvk = other.gvk();
    match specs.iter().find(|spec| spec.path == other.path && spec.gvk().selected_by(&gvk)) {
        None => specs.push(other.clone()),
        Some(spec) if spec.create == other.create => {}
        Some(_) => return Err(Error::new(Class::Config, "conflicting fieldspecs")),
    }
    Ok(())
}

fn merge_references(own: &[NameReference], others: &[NameReference]) -> Result<Vec<NameReference>, Error> {
    let mut merged = own.to_vec();
    for other in others {
        merge_reference(&mut merged, other)?;
    }
    Ok(merged)
}

fn merge_reference(references: &mut Vec<NameReference>, other: &NameReference) -> Result<(), Error> {
    let mut found = false;
    for reference in references.iter_mut().filter(|reference| reference.gvk().same(&other.gvk())) {
        found = true;
        reference.referrers = merge_specs(&reference.referrers, &other.referrers)?;
    }
    if !found {
        references.push(other.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_the_builtin_table_with_itself_changes_nothing() {
        let builtin = defaults::builtin();
        assert_eq!(builtin, &NONE.merged(builtin).unwrap());
        assert_eq!(builtin, &builtin.merged(builtin).unwrap());
    }

    #[test]
    fn specs_that_differ_only_in_create_are_a_conflict() {
        let spec = |create| FieldSpec { path: "a".to_owned(), create, ..FieldSpec::default() };
        assert!(merge_specs(&[spec(true)], &[spec(false)]).is_err());
        assert_eq!(merge_specs(&[spec(true)], &[spec(true)]).unwrap().len(), 1);
    }
}
