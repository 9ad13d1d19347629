//! Acting as someone else: the `Impersonate-*` headers, each authorised on its own.

use http::HeaderMap;

use super::{Attributes, Rbac, User};
use crate::request::percent_decode;
use crate::status::Status;

/// The user the request acts as: the caller, unless the headers name someone the caller may impersonate.
pub fn acting_user(
    headers: &HeaderMap,
    asked: &Attributes<'_>,
    caller: User,
    rbac: &Rbac,
) -> Result<User, Status> {
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let name = text("impersonate-user");
    let uid = text("impersonate-uid");
    let groups: Vec<String> = headers
        .get_all("impersonate-group")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .map(str::to_owned)
        .collect();
    let extra: Vec<(String, String)> = headers
        .iter()
        .filter_map(|(key, value)| {
            let key = key.as_str().strip_prefix("impersonate-extra-")?;
            Some((percent_decode(key), value.to_str().ok()?.to_owned()))
        })
        .collect();
    if name.is_empty() {
        if groups.is_empty() && extra.is_empty() && uid.is_empty() {
            return Ok(caller);
        }
        let names: Vec<String> = groups.iter().map(|group| format!("\"{group}\"")).collect();
        return Err(Status::bad_request(format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:\"{uid}\", Groups:[]string{{{}}}, \
             Extra:map[string][]string(nil)}} without impersonating a user name",
            names.join(", ")
        )));
    }
    let mut user = User { name: name.clone(), uid: uid.clone(), groups, ..User::default() };
    // The refusal is about what was asked, as constrained impersonation words it.
    allow_name(&name, &caller, rbac).map_err(|_| {
        let verb = format!("impersonate-on:user-info:{}", asked.verb);
        Attributes { verb: &verb, ..asked.clone() }.forbidden(&caller)
    })?;
    for group in &user.groups {
        allow(
            &caller,
            rbac,
            Attributes { verb: "impersonate", resource: "groups", name: group, ..Attributes::default() },
        )?;
    }
    let group = "authentication.k8s.io";
    if !uid.is_empty() {
        allow(
            &caller,
            rbac,
            Attributes { verb: "impersonate", group, resource: "uids", name: &uid, ..Attributes::default() },
        )?;
    }
    for (key, value) in extra {
        let asked = Attributes {
            verb: "impersonate",
            group,
            resource: "userextras",
            subresource: &key,
            name: &value,
            ..Attributes::default()
        };
        allow(&caller, rbac, asked)?;
        user.extra.entry(key).or_default().push(value);
    }
    complete_groups(&mut user);
    Ok(user)
}

fn allow_name(name: &str, caller: &User, rbac: &Rbac) -> Result<(), Status> {
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let asked = match account {
        Some((namespace, name)) => Attributes {
            verb: "impersonate",
            resource: "serviceaccounts",
            namespace,
            name,
            ..Attributes::default()
        },
        None => Attributes { verb: "impersonate", resource: "users", name, ..Attributes::default() },
    };
    allow(caller, rbac, asked)
}

fn allow(caller: &User, rbac: &Rbac, asked: Attributes<'_>) -> Result<(), Status> {
    if rbac.allows(caller, &asked) { Ok(()) } else { Err(asked.forbidden(caller)) }
}

/// Service accounts are in their groups, and everybody who is somebody is authenticated.
fn complete_groups(user: &mut User) {
    let account = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    if let (Some((namespace, _)), true) = (account, user.groups.is_empty()) {
        user.groups = vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
    }
    let anonymous = user.name == "system:anonymous";
    let known = if anonymous { "system:unauthenticated" } else { "system:authenticated" };
    if !user.groups.iter().any(|group| group == known) {
        user.groups.push(known.into());
    }
}
