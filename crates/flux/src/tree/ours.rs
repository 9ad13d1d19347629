//! Commands that upstream does not have. Rows only: what they do stands in `commands`.

use super::flag::{array, boolean, int, pairs, string};
use super::{Args, Row, row};

pub(super) static ROWS: &[Row] = &[
    row("reference", "Write pages about the commands and kinds").args(Args::Group).hidden(),
    row("reference markdown", "Write them as Markdown to a folder").args(Args::Exactly(1)).hidden(),
    row("reference man", "Write man pages to a folder").args(Args::Exactly(1)).hidden(),
    row("up", "Run a fleet on this machine, without a cluster").args(Args::AtMost(1)).flags(&[
        string("path", ""),
        string("state", ""),
        int("port", "0"),
        boolean("dirty"),
        boolean("ephemeral"),
        boolean("once"),
        string("cache", ""),
        boolean("offline"),
        array("local", ""),
    ]),
    row("test", "Run a fleet in memory and say whether it would work").args(Args::AtMost(1)).flags(&[
        string("path", ""),
        boolean("dirty"),
        string("diff", ""),
        string("cache", ""),
        boolean("offline"),
        boolean("refresh"),
        array("local", ""),
        string("output", "text").short('o'),
    ]),
    row("build helmrelease", "Render a HelmRelease as its controller would").aliases(&["hr"]).flags(&[
        string("chart", ""),
        boolean("dry-run"),
        string("file", "").short('f'),
        pairs("local-sources", ""),
        boolean("show-secrets"),
    ]),
    row("diff helmrelease", "Compare a HelmRelease with its release and with the cluster")
        .aliases(&["hr"])
        .flags(&[string("chart", ""), string("file", "").short('f'), pairs("local-sources", "")]),
    row("image", "Group: questions about images").args(Args::Group),
    row("image explain", "Group: explanations").args(Args::Group),
    row("image explain policy", "Say of each tag why a policy keeps or drops it, and the order")
        .args(Args::AtMost(1))
        .flags(&[string("tags-from", "")]),
    row("why", "Follow an object to what is broken and show the evidence").args(Args::Any),
    row("wait", "Wait until an object is ready, at a revision if one is given")
        .args(Args::Any)
        .flags(&[string("revision", "")]),
    row("explain", "Group: where things come from").args(Args::Group),
    row("explain values", "Show which layer set the values of a HelmRelease")
        .args(Args::Any)
        .flags(&[string("key", "")]),
];
