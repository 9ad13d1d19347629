//! Addresses as Go writes them: `:9090`, `0.0.0.0:9090`, `localhost:9090`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

use crate::error::{CliError, fail};

/// Where to listen.
pub(super) fn listen(flag: &str, text: &str) -> Result<SocketAddr, CliError> {
    let wrong = || fail!("--{flag} '{text}' is not host:port");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    match host {
        "" => Ok((Ipv4Addr::UNSPECIFIED, port).into()),
        _ => text.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(wrong),
    }
}

/// How others reach the listener, as upstream derives it; `None` where the port is not known yet. `hostname` is this
/// machine's, as its environment has it.
pub(super) fn advertised(text: &str, port: u16, hostname: Option<&str>) -> Option<String> {
    let (host, _) = text.rsplit_once(':')?;
    let host = match host {
        "" => "localhost".to_owned(),
        "0.0.0.0" => hostname.filter(|name| !name.is_empty())?.to_owned(),
        host => host.to_owned(),
    };
    (port != 0).then(|| format!("{host}:{port}"))
}

/// Two listeners on one port would be found out by whoever starts second; here both flags are named.
pub(super) fn check_collisions(listeners: &[(&str, Option<SocketAddr>)]) -> Result<(), CliError> {
    let mut ports: BTreeMap<u16, &str> = BTreeMap::new();
    let open = listeners.iter().filter_map(|(flag, address)| Some((flag, (*address)?)));
    for (flag, address) in open.filter(|(_, address)| address.port() != 0) {
        if let Some(other) = ports.insert(address.port(), flag) {
            return Err(fail!("--{other} and --{flag} are both on port {}", address.port()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_go_writes_them() {
        assert_eq!(listen("a", ":9090").unwrap().to_string(), "0.0.0.0:9090");
        assert_eq!(listen("a", "127.0.0.1:1").unwrap().to_string(), "127.0.0.1:1");
        assert_eq!(listen("a", "[::1]:1").unwrap().to_string(), "[::1]:1");
        for wrong in ["", "9090", ":x", "host:99999"] {
            assert!(listen("a", wrong).is_err(), "{wrong}");
        }
        let advertised = |text, port| advertised(text, port, Some("source-controller-0"));
        assert_eq!(advertised(":9090", 9090).as_deref(), Some("localhost:9090"));
        assert_eq!(advertised("0.0.0.0:9090", 9090).as_deref(), Some("source-controller-0:9090"));
        assert_eq!(advertised("source.flux-system:9090", 9090).as_deref(), Some("source.flux-system:9090"));
        assert_eq!(advertised(":0", 0), None, "nobody knows the port yet");
    }

    #[test]
    fn listeners_do_not_collide() {
        let at = |port| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        assert!(check_collisions(&[("a", at(1)), ("b", at(2)), ("c", at(0)), ("d", None)]).is_ok());
        let error = check_collisions(&[("storage-addr", at(1)), ("metrics-addr", at(1))]).unwrap_err();
        assert_eq!(error.to_string(), "--storage-addr and --metrics-addr are both on port 1");
    }
}
