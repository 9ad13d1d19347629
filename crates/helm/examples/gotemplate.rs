//! Executes one template: `{"tmpl": …, "data": …, "mode": "int"|"float"}` on stdin, the output on stdout.
//!
//! With sprig's and Helm's functions. An error goes to stderr after the phase that failed, `PARSE: ` or `EXEC: `. The mode says whether whole numbers of the data are Go ints or float64.
#![allow(clippy::disallowed_methods, reason = "an example owns its input and its clock")]

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::Arc;

use gotemplate::{Limits, Numbers, Session, Set, Value};
use helm::Dialect;
use serde_json::Value as Json;

fn main() -> ExitCode {
    let mut input = String::new();
    let result = std::io::stdin()
        .read_to_string(&mut input)
        .map_err(|error| error.to_string())
        .and_then(|_| run(&input));
    match result {
        Ok(output) if std::io::stdout().write_all(&output).is_ok() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(input: &str) -> Result<Vec<u8>, String> {
    let request: Json = serde_json::from_str(input).map_err(|error| error.to_string())?;
    let numbers = if request["mode"] == "int" { Numbers::Int } else { Numbers::Float };
    let data = Value::from_json(&request["data"], numbers);
    // Stands for the API versions of a cluster, which JSON cannot say.
    if let Value::Map(fields) = &data
        && request["data"]["Caps"] == "__CAPS__"
    {
        fields.set("Caps", helm::api_versions(["v1", "apps/v1", "batch/v1"]));
    }
    let mut set = Set::new(helm::functions(Dialect::Helm4, false));
    set.parse("root", request["tmpl"].as_str().unwrap_or_default())
        .map_err(|error| format!("PARSE: {error}"))?;
    let session = Session::new(&Machine, Limits::default());
    Arc::new(set).execute(&session, "root", &data).map_err(|error| {
        // Helm takes its marks around messages out again when it shows an error.
        format!("EXEC: {error}").replace("HELM_ERR_START", "").replace("HELM_ERR_END", "")
    })
}

/// The clock and chance of this machine.
struct Machine;

impl gotemplate::Host for Machine {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    fn random(&self, buffer: &mut [u8]) {
        std::fs::File::open("/dev/urandom")
            .and_then(|mut f| f.read_exact(buffer))
            .expect("this machine has a source of chance");
    }
}
