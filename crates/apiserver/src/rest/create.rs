//! Creating an object.

use rand::Rng as _;
use serde_json::Value;

use super::{Call, Written, finish, key};
use crate::status::{About, Cause, Status};
use crate::storage::WriteError;
use crate::{admission, defaults, object, ownership, strategy, validate};

/// Characters of generated names: no vowels, so that no words come out.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Longest base of a generated name.
const NAME_BASE: usize = 58;

/// Creates `object` (already decoded and of the right kind).
pub async fn create(call: &Call, mut object: Value) -> Result<Written, Status> {
    address(call, &mut object)?;
    object::set_meta(&mut object, "managedFields", None);
    defaults::apply(&call.resource, &mut object);
    // Who owns what is settled before the cluster adds its part, as in the real server.
    ownership::after_write(call, None, &mut object);
    prepare(call, &mut object)?;
    store(call, object).await
}

/// Creates an object whose managedFields are already right (server-side apply).
pub async fn create_applied(call: &Call, mut object: Value) -> Result<Written, Status> {
    address(call, &mut object)?;
    defaults::apply(&call.resource, &mut object);
    prepare(call, &mut object)?;
    store(call, object).await
}

fn address(call: &Call, object: &mut Value) -> Result<(), Status> {
    if !object::meta_str(object, "resourceVersion").is_empty() {
        return Err(Status::unexpected("resourceVersion should not be set on objects to be created"));
    }
    place(call, object)?;
    admission::namespace_is_open(call, object)
}

fn prepare(call: &Call, object: &mut Value) -> Result<(), Status> {
    server_fields(call, object);
    admission::mutate(call, None, object)?;
    validate::create(call, object)?;
    admission::validate(call, None, object)
}

/// Settles name and namespace.
fn place(call: &Call, object: &mut Value) -> Result<(), Status> {
    if call.resource.namespaced() {
        match object::namespace(object) {
            "" => object::set_meta(object, "namespace", Some(call.namespace.clone().into())),
            namespace if namespace != call.namespace => {
                return Err(Status::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            _ => {}
        }
    } else {
        object::set_meta(object, "namespace", None);
    }
    if object::name(object).is_empty() && !object::meta_str(object, "generateName").is_empty() {
        let name = generate_name(object::meta_str(object, "generateName"));
        object::set_meta(object, "name", Some(name.into()));
    }
    if object::name(object).is_empty() {
        let cause = Cause::required("metadata.name", "name or generateName is required");
        return Err(call.invalid("", &[cause]));
    }
    Ok(())
}

pub fn generate_name(base: &str) -> String {
    let mut cut = base.len().min(NAME_BASE);
    while !base.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut name = base[..cut].to_owned();
    let mut random = rand::rng();
    for _ in 0..5 {
        name.push(NAME_ALPHABET[random.random_range(0..NAME_ALPHABET.len())] as char);
    }
    name
}

/// What only the server may say about a new object.
fn server_fields(call: &Call, object: &mut Value) {
    let strategy = strategy::of(&call.resource);
    let meta = object::meta_mut(object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
        meta.remove(field);
    }
    meta.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    meta.insert("creationTimestamp".into(), call.now().into());
    if strategy.generation {
        meta.insert("generation".into(), 1.into());
    }
    if strategy.status
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    // Kinds whose empty status is a structure show it even so, and custom kinds may give a new object a status.
    defaults::apply(&call.resource, object);
}

async fn store(call: &Call, object: Value) -> Result<Written, Status> {
    let name = object::name(&object).to_owned();
    let key = key(&call.resource, &call.namespace, &name);
    let place = &call.resource.storage;
    let exists = || Status::already_exists(About { name: &name, ..call.about() });
    if call.options.dry_run {
        return match call.server.store.get(place, &key) {
            Some(_) => Err(exists()),
            None => Ok(Written::Imagined { object, created: true }),
        };
    }
    let object = finish::to_storage(call, object);
    let fields = finish::fields(call, &object);
    match call.server.store.create(place, &key, object, fields).await {
        Ok(stored) => {
            call.server.written(&call.resource, &stored);
            Ok(Written::Created(stored))
        }
        Err(WriteError::Exists) => Err(exists()),
        Err(error) => Err(Status::internal(error)),
    }
}
