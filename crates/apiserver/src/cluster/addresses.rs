//! Addresses of Services: cluster IPs and node ports, each given once.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use rand::Rng as _;
use serde_json::{Value, json};

use crate::object::{self, integer, text};
use crate::rest::Call;
use crate::status::{Cause, Status};

/// 10.96.0.0/12, as most clusters have it; .1 is the API server's own.
const FIRST: u32 = u32::from_be_bytes([10, 96, 0, 10]);
const LAST: u32 = u32::from_be_bytes([10, 111, 255, 254]);
const PORTS: std::ops::RangeInclusive<i64> = 30000..=32767;
const TRIES: usize = 10_000;

/// Gives a Service what it needs; an update keeps what it had.
pub fn assign(call: &Call, old: Option<&Value>, service: &mut Value) -> Result<(), Status> {
    let kind = text(service, "/spec/type").to_owned();
    if kind == "ExternalName" {
        let spec = object::child_mut(service, "spec");
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            spec.remove(key);
        }
        return Ok(());
    }
    keep(old, service);
    cluster_ip(call, service)?;
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer")
        && service["spec"]["allocateLoadBalancerNodePorts"] != false
    {
        node_ports(call, old, service)?;
    }
    Ok(())
}

/// An update that leaves the address out means "as before".
fn keep(old: Option<&Value>, service: &mut Value) {
    let Some(old) = old else { return };
    if text(old, "/spec/type") == "ExternalName" {
        return;
    }
    let old_spec = old["spec"].clone();
    let spec = object::child_mut(service, "spec");
    for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"] {
        if spec.get(key).is_none_or(|value| value == "" || value.is_null()) && !old_spec[key].is_null() {
            spec.insert(key.into(), old_spec[key].clone());
        }
    }
}

fn cluster_ip(call: &Call, service: &mut Value) -> Result<(), Status> {
    let name = object::name(service).to_owned();
    let own = format!("{}/{name}", call.namespace);
    let asked = text(service, "/spec/clusterIP").to_owned();
    let listed = text(service, "/spec/clusterIPs/0").to_owned();
    let asked = if asked.is_empty() { listed } else { asked };
    let address = match asked.as_str() {
        "None" => asked,
        "" => free_address(call, &own)?,
        _ if asked.parse::<Ipv4Addr>().is_err() => {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            let cause = Cause::invalid("spec.clusterIPs[0]", &Value::from(asked.as_str()), detail);
            return Err(call.invalid(&name, &[cause]));
        }
        _ if taken(call, &own).contains(&asked) => {
            let detail = "failed to allocate IP ".to_owned() + &asked + ": provided IP is already allocated";
            let cause = Cause::invalid("spec.clusterIPs", &json!([asked]), &detail);
            return Err(call.invalid(&name, &[cause]));
        }
        _ => asked,
    };
    let spec = object::child_mut(service, "spec");
    spec.insert("clusterIP".into(), address.as_str().into());
    spec.insert("clusterIPs".into(), json!([address]));
    spec.entry("ipFamilies").or_insert(json!(["IPv4"]));
    spec.entry("ipFamilyPolicy").or_insert(json!("SingleStack"));
    Ok(())
}

fn taken(call: &Call, but: &str) -> HashSet<String> {
    let (_, services) = call.server.store.list("services", "");
    services
        .iter()
        .filter(|stored| &*stored.key != but)
        .filter_map(|stored| stored.field("spec.clusterIP").map(str::to_owned))
        .collect()
}

fn free_address(call: &Call, own: &str) -> Result<String, Status> {
    let taken = taken(call, own);
    let mut random = rand::rng();
    for _ in 0..TRIES {
        let address = Ipv4Addr::from(random.random_range(FIRST..=LAST)).to_string();
        if !taken.contains(&address) {
            return Ok(address);
        }
    }
    Err(Status::internal("failed to allocate a serviceIP: range is full"))
}

fn node_ports(call: &Call, old: Option<&Value>, service: &mut Value) -> Result<(), Status> {
    let own = format!("{}/{}", call.namespace, object::name(service));
    let (_, services) = call.server.store.list("services", "");
    let mut used: HashSet<i64> = HashSet::new();
    for stored in
        services.iter().filter(|stored| *stored.key != *own && stored.field("spec.type") != Some("ClusterIP"))
    {
        used.extend(
            stored.value()["spec"]["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|p| p["nodePort"].as_i64()),
        );
    }
    let name = object::name(service).to_owned();
    let old_ports = old.map(|old| old["spec"]["ports"].clone()).unwrap_or_default();
    let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten();
    let mut random = rand::rng();
    for (at, port) in ports.enumerate() {
        let asked = integer(port, "/nodePort").unwrap_or(0);
        let field = format!("spec.ports[{at}].nodePort");
        if asked != 0 {
            let detail = match () {
                () if !PORTS.contains(&asked) => {
                    "provided port is not in the valid range. The range of valid ports is 30000-32767"
                }
                () if used.contains(&asked) => "provided port is already allocated",
                () => "",
            };
            if !detail.is_empty() {
                return Err(call.invalid(&name, &[Cause::invalid(field, &Value::from(asked), detail)]));
            }
            used.insert(asked);
            continue;
        }
        let before = old_ports.as_array().into_iter().flatten().find(|old| {
            old["port"] == port["port"]
                && old["protocol"] == port["protocol"]
                && old["nodePort"].as_i64().unwrap_or(0) != 0
        });
        let number = match before {
            Some(old) => old["nodePort"].as_i64().unwrap_or(0),
            None => (0..TRIES)
                .map(|_| random.random_range(PORTS))
                .find(|port| !used.contains(port))
                .ok_or_else(|| Status::internal("failed to allocate a nodePort: range is full"))?,
        };
        used.insert(number);
        port["nodePort"] = number.into();
    }
    Ok(())
}
