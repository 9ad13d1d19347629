//! From a request to the verb it means, and from the verb's result to an answer.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

use crate::kinds::{Resource, Verb};
use crate::media::{Accept, BodyType, Form, PatchType};
use crate::request::RequestInfo;
use crate::respond::Answer;
use crate::rest::delete::DeleteOptions;
use crate::rest::read::{ListOptions, Page};
use crate::rest::{
    Call, FieldValidation, Options, Written, create, delete, finish, patch, read, scale, update, watch,
};
use crate::server::Inner;
use crate::service::{Incoming, not_found_text};
use crate::status::{Cause, Status};
use crate::storage::Stored;
use crate::{decode, discovery, object, ownership, reviews, table};

pub async fn dispatch(server: &Arc<Inner>, incoming: Incoming) -> Result<Answer, Status> {
    if !incoming.info.is_resource {
        return discovery::answer(server, &incoming);
    }
    let info = &incoming.info;
    let registry = server.registry();
    if registry.version(&info.group, &info.version).is_none() {
        return Ok(not_found_text());
    }
    let Some(resource) = registry.find(&info.group, &info.version, &info.resource) else {
        let builtin = crate::kinds::builtin().iter().any(|group| *group.name == *info.group);
        return if builtin { Err(Status::no_such_resource()) } else { Ok(not_found_text()) };
    };
    if resource.namespaced() && info.namespace.is_empty() && !matches!(info.verb.as_str(), "list" | "watch") {
        return Err(Status::method_not_allowed());
    }
    let call = call(server, &incoming, resource)?;
    if !info.subresource.is_empty() {
        return subresource(call, incoming).await;
    }
    if let Some(answer) = reviews::answer(&call, &incoming).await {
        return answer;
    }
    if let Some(custom) = &resource.custom
        && let Some(warning) = &custom.deprecation_warning
    {
        call.warn(warning.clone());
    }
    if &*resource.storage == "endpoints" {
        call.warn("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice");
    }
    let verb = Verb::parse(&info.verb).ok_or_else(Status::method_not_allowed)?;
    let named = !info.name.is_empty();
    // The server of custom kinds is laxer about where a method is used.
    if resource.custom.is_some() && verb == Verb::Update && !named {
        return Err(Status::bad_request("name must be provided"));
    }
    let fits = match verb {
        Verb::Create if resource.custom.is_some() => true,
        Verb::Create | Verb::List | Verb::DeleteCollection => !named,
        Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => named,
        Verb::Watch => true,
    };
    if !fits || !resource.allows(verb) {
        return Err(Status::method_not_allowed());
    }
    match verb {
        Verb::Get => get(&call, &incoming).await,
        Verb::List => list(&call, &incoming).await,
        Verb::Watch => start_watch(call, &incoming).await,
        Verb::Create => {
            let accept = accept(&incoming)?;
            let object = decode::body(&call, BodyType::read(&incoming.headers)?, &incoming.body)?;
            let written = create::create(&call, object).await?;
            Ok(written_answer(&call, &written, accept))
        }
        Verb::Update => {
            let accept = accept(&incoming)?;
            let object = decode::body(&call, BodyType::read(&incoming.headers)?, &incoming.body)?;
            let written = update::update(&call, object).await?;
            Ok(written_answer(&call, &written, accept))
        }
        Verb::Patch => {
            let accept = accept(&incoming)?;
            let written = patch::patch(&call, patch_type(&call, &incoming.headers)?, &incoming.body).await?;
            Ok(written_answer(&call, &written, accept))
        }
        Verb::Delete => {
            let accept = accept(&incoming)?;
            let written = delete::delete(&call, &delete_options(&incoming)?).await?;
            Ok(written_answer(&call, &written, accept))
        }
        Verb::DeleteCollection => {
            let options = ListOptions::read(&call, &incoming.info.query, false)?;
            let deleting = delete_options(&incoming)?;
            let list = delete::delete_collection(&call, &deleting, &options.labels, &options.fields).await?;
            Ok(Answer::value(StatusCode::OK, &list, accept(&incoming)?))
        }
    }
}

fn call(server: &Arc<Inner>, incoming: &Incoming, resource: &Arc<Resource>) -> Result<Call, Status> {
    Ok(Call {
        server: server.clone(),
        resource: resource.clone(),
        namespace: if resource.namespaced() { incoming.info.namespace.clone() } else { String::new() },
        name: incoming.info.name.clone(),
        subresource: incoming.info.subresource.clone(),
        user: incoming.user.clone(),
        options: options(incoming)?,
        warnings: Mutex::default(),
    })
}

fn options(incoming: &Incoming) -> Result<Options, Status> {
    let info = &incoming.info;
    let kind = match info.verb.as_str() {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        _ => "DeleteOptions",
    };
    let query = &info.query;
    let dry_run = query.all("dryRun");
    if dry_run.iter().any(|value| value != "All") {
        let cause = Cause::not_supported("dryRun", &json!(dry_run), &["All"]);
        return Err(Status::invalid_options(kind, &[cause]));
    }
    let field_validation = match query.get("fieldValidation").unwrap_or_default() {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            let supported = ["", "Ignore", "Strict", "Warn"];
            let cause = Cause::not_supported("fieldValidation", &Value::from(other), &supported);
            return Err(Status::invalid_options(kind, &[cause]));
        }
    };
    let parameter = query.get("fieldManager").unwrap_or_default();
    if parameter.len() > 128 {
        let cause = Cause::too_long("fieldManager", 128);
        return Err(Status::invalid_options(kind, &[cause]));
    }
    let applies = PatchType::read(&incoming.headers) == Some(PatchType::Apply) && info.verb == "patch";
    let agent = incoming.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok());
    let field_manager = match applies {
        true => parameter.to_owned(),
        false => ownership::manager_name(parameter, agent.unwrap_or_default()),
    };
    let force = query.is_true("force");
    if force && info.verb == "patch" && !applies {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(Status::invalid_options(kind, &[cause]));
    }
    Ok(Options { dry_run: !dry_run.is_empty(), field_manager, field_validation, force })
}

fn patch_type(call: &Call, headers: &HeaderMap) -> Result<PatchType, Status> {
    let custom = || {
        Status::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ])
    };
    let unsupported = || {
        if call.resource.custom.is_some() {
            return custom();
        }
        Status::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", "415: Unsupported Media Type")
            .with_empty_details()
    };
    let patch_type = PatchType::read(headers).ok_or_else(unsupported)?;
    if patch_type == PatchType::Strategic && call.resource.custom.is_some() {
        return Err(custom());
    }
    Ok(patch_type)
}

/// The form asked for; rows of a table carry what `includeObject` says.
fn accept(incoming: &Incoming) -> Result<Accept, Status> {
    let accept = Accept::read(&incoming.headers).map_err(|status| not_acceptable(incoming, status))?;
    Ok(Accept { include: table::Include::read(&incoming.info.query), ..accept })
}

/// Custom kinds and builtin lists have words of their own.
fn not_acceptable(incoming: &Incoming, status: Status) -> Status {
    let group = &incoming.info.group;
    if crate::kinds::builtin().iter().all(|builtin| &*builtin.name != group.as_str()) {
        let types = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        return Status::not_acceptable(format!("only the following media types are accepted: {types}"));
    }
    if incoming.info.name.is_empty() {
        let more = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        return Status::not_acceptable(format!("{}, {more}", status.message)).with_empty_details();
    }
    status
}

fn delete_options(incoming: &Incoming) -> Result<DeleteOptions, Status> {
    let body = match BodyType::read(&incoming.headers)? {
        _ if incoming.body.is_empty() => Value::Null,
        BodyType::Json => serde_json::from_slice(&incoming.body)
            .map_err(|error| Status::bad_request(format!("DeleteOptions cannot be read: {error}")))?,
        BodyType::Yaml => decode::yaml_to_json(&incoming.body)
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok())
            .ok_or_else(|| Status::bad_request("DeleteOptions cannot be read"))?,
        BodyType::Protobuf => crate::protobuf::to_json(&incoming.body)?,
    };
    DeleteOptions::read(&body, &incoming.info.query)
}

fn warnings(call: &Call) -> Vec<String> {
    std::mem::take(&mut *call.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn written_answer(call: &Call, written: &Written, accept: Accept) -> Answer {
    let code = if written.created() { StatusCode::CREATED } else { StatusCode::OK };
    let answer = match written {
        Written::Created(stored) | Written::Updated(stored) => object_answer(call, code, stored, accept),
        Written::Imagined { object, .. } => {
            let mut object = crate::convert::to(&call.resource, object.clone());
            if written.created() {
                object::set_meta(&mut object, "resourceVersion", None);
            }
            value_answer(call, code, object, accept)
        }
        Written::Answer(value) => Answer::value(code, value, accept),
    };
    answer.with_warnings(warnings(call))
}

fn object_answer(call: &Call, code: StatusCode, stored: &Stored, accept: Accept) -> Answer {
    if accept.plain() {
        let registry = call.server.registry();
        if let Some(storage) = registry.stored(&call.resource.storage) {
            return Answer::json(code, finish::shown_json(&call.resource, storage, stored));
        }
    }
    value_answer(call, code, finish::shown(&call.resource, stored), accept)
}

fn value_answer(call: &Call, code: StatusCode, object: Value, accept: Accept) -> Answer {
    let shown = match accept.form {
        Form::Object | Form::DiscoveryV2 | Form::MetadataList => object,
        Form::Metadata => table::metadata_only(&object),
        Form::Table => {
            let revision = object::meta_str(&object, "resourceVersion").to_owned();
            table::of(
                call,
                &[object],
                json!({ "resourceVersion": revision }),
                table::Header::Shown,
                accept.include,
            )
        }
    };
    Answer::value(code, &shown, accept)
}

async fn get(call: &Call, incoming: &Incoming) -> Result<Answer, Status> {
    let accept = accept(incoming)?;
    if let Some(revision) = incoming.info.query.get("resourceVersion").filter(|text| !text.is_empty()) {
        let asked =
            ListOptions { revision: revision.to_owned(), ..ListOptions::default() }.revision_number()?;
        read::wait_for(call, asked).await?;
    }
    let stored = call.stored()?;
    Ok(object_answer(call, StatusCode::OK, &stored, accept).with_warnings(warnings(call)))
}

async fn list(call: &Call, incoming: &Incoming) -> Result<Answer, Status> {
    let accept = accept(incoming)?;
    let options = ListOptions::read(call, &incoming.info.query, false)?;
    let page = read::list(call, &options).await?;
    Ok(list_answer(call, &page, accept).with_warnings(warnings(call)))
}

fn list_answer(call: &Call, page: &Page, accept: Accept) -> Answer {
    let resource = &call.resource;
    if accept.plain() {
        return Answer::json(StatusCode::OK, list_json(call, page));
    }
    let objects = || page.items.iter().map(|stored| finish::shown(resource, stored)).collect::<Vec<_>>();
    let shown = match accept.form {
        Form::Object | Form::DiscoveryV2 => json!({
            "kind": &*resource.list_kind, "apiVersion": resource.api_version(),
            "metadata": page.list_meta(call.resource.custom.is_some()), "items": objects(),
        }),
        Form::Table => {
            table::of(call, &objects(), page.list_meta(false), table::Header::Shown, accept.include)
        }
        Form::Metadata | Form::MetadataList => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": page.list_meta(call.resource.custom.is_some()),
            "items": objects().iter().map(|object| metadata_item(object, accept)).collect::<Vec<_>>(),
        }),
    };
    Answer::value(StatusCode::OK, &shown, accept)
}

/// Protobuf writes no kind into the items of a list, and clients that ask for it compare them with what they know.
fn metadata_item(object: &Value, accept: Accept) -> Value {
    let mut item = table::metadata_only(object);
    if let Some(fields) = item.as_object_mut().filter(|_| accept.protobuf) {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    item
}

/// A list as bytes: the items are copied as they are kept, never parsed.
fn list_json(call: &Call, page: &Page) -> Vec<u8> {
    let resource = &call.resource;
    let registry = call.server.registry();
    let storage = registry.stored(&resource.storage);
    let size: usize = page.items.iter().map(|stored| stored.json.len() + 1).sum();
    let head = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
        Value::from(&*resource.list_kind),
        Value::from(resource.api_version()),
        page.list_meta(call.resource.custom.is_some())
    );
    let mut json = Vec::with_capacity(size + head.len() + 2);
    json.extend_from_slice(head.as_bytes());
    for (at, stored) in page.items.iter().enumerate() {
        if at > 0 {
            json.push(b',');
        }
        match storage {
            Some(storage) if Arc::ptr_eq(storage, resource) && resource.custom.is_none() => {
                json.push(b'{');
                json.extend_from_slice(stored.untyped_json());
            }
            Some(storage) => json.extend_from_slice(&finish::shown_json(resource, storage, stored)),
            None => json.extend_from_slice(&stored.json),
        }
    }
    json.extend_from_slice(b"]}");
    json
}

async fn start_watch(mut call: Call, incoming: &Incoming) -> Result<Answer, Status> {
    let accept = accept(incoming)?;
    let mut options = ListOptions::read(&call, &incoming.info.query, true)?;
    if !call.name.is_empty() {
        let name = std::mem::take(&mut call.name);
        let test = crate::selector::FieldTest { field: "metadata.name".into(), equal: true, value: name };
        options.fields.0.push(test);
    }
    let warnings = warnings(&call);
    let (shape, bookmark) = shapes(&call, accept);
    let lines = watch::watch(call, options, shape, bookmark).await?;
    Ok(Answer::stream(lines).with_warnings(warnings))
}

fn shapes(call: &Call, accept: Accept) -> (watch::Shape, watch::BookmarkShape) {
    let resource = call.resource.clone();
    let registry = call.server.registry();
    let as_stored = registry.stored(&resource.storage).is_some_and(|storage| Arc::ptr_eq(storage, &resource))
        && finish::reread(&resource).is_none();
    match accept.form {
        Form::Object | Form::DiscoveryV2 if as_stored => (None, Box::new(|bookmark| bookmark)),
        Form::Object | Form::DiscoveryV2 => {
            let shape = move |stored: &Stored| finish::shown(&resource, stored);
            (Some(Box::new(shape)), Box::new(|bookmark| bookmark))
        }
        Form::Metadata | Form::MetadataList => {
            let shape = move |stored: &Stored| table::metadata_only(&finish::shown(&resource, stored));
            (Some(Box::new(shape)), Box::new(|bookmark| table::metadata_only(&bookmark)))
        }
        Form::Table => {
            // The column definitions come with the first event only, as kubectl expects.
            let (server, first) = (call.server.clone(), std::sync::atomic::AtomicBool::new(true));
            let first = Arc::new(first);
            let header = move || match first.swap(false, std::sync::atomic::Ordering::Relaxed) {
                true => table::Header::Shown,
                false => table::Header::Left,
            };
            let (for_rows, for_bookmarks) = (header.clone(), header);
            let shown = resource.clone();
            let row_server = server.clone();
            let shape = move |stored: &Stored| {
                let call = Call::internal(&row_server, &resource, stored.namespace(), stored.name(), "");
                let meta = json!({ "resourceVersion": stored.revision.to_string() });
                table::of(&call, &[finish::shown(&resource, stored)], meta, for_rows(), accept.include)
            };
            let bookmark = move |object: Value| {
                let call = Call::internal(&server, &shown, "", "", "");
                let meta = json!({ "resourceVersion": object::meta_str(&object, "resourceVersion") });
                table::of(&call, &[object], meta, for_bookmarks(), accept.include)
            };
            (Some(Box::new(shape)), Box::new(bookmark))
        }
    }
}

async fn subresource(call: Call, incoming: Incoming) -> Result<Answer, Status> {
    let info: &RequestInfo = &incoming.info;
    let Some(sub) = call.resource.subresource(&info.subresource) else {
        return Err(Status::no_such_resource());
    };
    let verb = Verb::parse(&info.verb).ok_or_else(Status::method_not_allowed)?;
    if !sub.verbs.contains(&verb) {
        return Err(Status::method_not_allowed());
    }
    let accept = accept(&incoming)?;
    match (info.subresource.as_str(), &incoming.method) {
        ("scale", &Method::GET) => Ok(Answer::value(StatusCode::OK, &scale::get(&call)?, accept)),
        ("scale", _) => {
            let scale = set_scale(&call, &incoming).await?;
            Ok(Answer::value(StatusCode::OK, &scale, accept).with_warnings(warnings(&call)))
        }
        ("status" | "finalize" | "approval" | "ephemeralcontainers" | "resize", &Method::GET) => {
            let stored = call.stored()?;
            Ok(object_answer(&call, StatusCode::OK, &stored, accept))
        }
        ("status" | "finalize" | "approval" | "ephemeralcontainers" | "resize", &Method::PUT) => {
            let object = decode::body(&call, BodyType::read(&incoming.headers)?, &incoming.body)?;
            let written = update::update(&call, object).await?;
            Ok(written_answer(&call, &written, accept))
        }
        ("status" | "finalize" | "approval" | "ephemeralcontainers" | "resize", &Method::PATCH) => {
            let written = patch::patch(&call, patch_type(&call, &incoming.headers)?, &incoming.body).await?;
            Ok(written_answer(&call, &written, accept))
        }
        _ => reviews::subresource(&call, &incoming).await,
    }
}

async fn set_scale(call: &Call, incoming: &Incoming) -> Result<Value, Status> {
    if incoming.method == Method::PUT {
        let wanted = decode::body(call, BodyType::read(&incoming.headers)?, &incoming.body)?;
        update::check_address(call, &wanted)?;
        return scale::set(call, |_| Ok(wanted.clone())).await;
    }
    let patch_type = patch_type(call, &incoming.headers)?;
    scale::set(call, |current| patch::edit(call, patch_type, &incoming.body, current)).await
}
