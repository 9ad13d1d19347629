//! Which functions there are, and on what: read by the checker. `libraries` does what they say.
//!
//! The set is Kubernetes 1.36's: the standard library, extended strings (version 2), lists, sets, optionals,
//! and Kubernetes' own. A method is written `string.contains(string): bool`.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::Libraries;
use crate::static_type::Type;

/// One way to call a function.
pub(crate) struct Signature {
    /// Whether the first parameter is the target of a method.
    pub(crate) method: bool,
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
}

type Signatures = HashMap<String, Vec<Signature>>;

/// All ways to call each function. Functions in a namespace have a dot in their name: `sets.contains`.
pub(crate) fn all(libraries: Libraries) -> &'static Signatures {
    static KUBERNETES: LazyLock<Signatures> = LazyLock::new(|| table(TABLE));
    static MUTATION: LazyLock<Signatures> =
        LazyLock::new(|| table(&[TABLE, "jsonpatch.escapeKey(string): string"].concat()));
    static EXTENDED: LazyLock<Signatures> = LazyLock::new(|| table(&[TABLE, MORE].concat()));
    match libraries {
        Libraries::Kubernetes => &KUBERNETES,
        Libraries::Mutation => &MUTATION,
        Libraries::Extended => &EXTENDED,
    }
}

fn table(text: &str) -> Signatures {
    let mut all = Signatures::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, signature) = read(line);
        all.entry(name).or_default().push(signature);
    }
    all
}

/// What cel-go's newest extensions have and Kubernetes leaves out.
const MORE: &str = "
    string.reverse(): string
    base64.encode(bytes): string
    base64.decode(string): bytes
";

const TABLE: &str = "
    _+_(int, int): int
    _+_(uint, uint): uint
    _+_(double, double): double
    _+_(string, string): string
    _+_(bytes, bytes): bytes
    _+_(list<A>, list<A>): list<A>
    _+_(timestamp, duration): timestamp
    _+_(duration, timestamp): timestamp
    _+_(duration, duration): duration
    _-_(int, int): int
    _-_(uint, uint): uint
    _-_(double, double): double
    _-_(timestamp, timestamp): duration
    _-_(timestamp, duration): timestamp
    _-_(duration, duration): duration
    _*_(int, int): int
    _*_(uint, uint): uint
    _*_(double, double): double
    _/_(int, int): int
    _/_(uint, uint): uint
    _/_(double, double): double
    _%_(int, int): int
    _%_(uint, uint): uint
    -_(int): int
    -_(double): double
    !_(bool): bool
    _==_(A, A): bool
    _!=_(A, A): bool
    @in(A, list<A>): bool
    @in(A, map<A, B>): bool
    _<_(bool, bool): bool
    _<_(int, int): bool
    _<_(uint, uint): bool
    _<_(double, double): bool
    _<_(string, string): bool
    _<_(bytes, bytes): bool
    _<_(timestamp, timestamp): bool
    _<_(duration, duration): bool
    size(string): int
    size(bytes): int
    size(list<A>): int
    size(map<A, B>): int
    string.size(): int
    bytes.size(): int
    list<A>.size(): int
    map<A, B>.size(): int
    int(int): int
    int(uint): int
    int(double): int
    int(string): int
    int(timestamp): int
    int(duration): int
    uint(uint): uint
    uint(int): uint
    uint(double): uint
    uint(string): uint
    double(double): double
    double(int): double
    double(uint): double
    double(string): double
    string(string): string
    string(bool): string
    string(int): string
    string(uint): string
    string(double): string
    string(bytes): string
    string(timestamp): string
    string(duration): string
    bytes(string): bytes
    bytes(bytes): bytes
    bool(bool): bool
    bool(string): bool
    dyn(A): dyn
    type(A): type
    timestamp(string): timestamp
    timestamp(int): timestamp
    timestamp(timestamp): timestamp
    duration(string): duration
    duration(int): duration
    duration(duration): duration
    string.contains(string): bool
    string.startsWith(string): bool
    string.endsWith(string): bool
    string.matches(string): bool
    matches(string, string): bool
    string.charAt(int): string
    string.indexOf(string): int
    string.indexOf(string, int): int
    string.lastIndexOf(string): int
    string.lastIndexOf(string, int): int
    string.lowerAscii(): string
    string.upperAscii(): string
    string.replace(string, string): string
    string.replace(string, string, int): string
    string.split(string): list<string>
    string.split(string, int): list<string>
    string.substring(int): string
    string.substring(int, int): string
    string.trim(): string
    string.format(list<dyn>): string
    list<string>.join(): string
    list<string>.join(string): string
    strings.quote(string): string
    string.find(string): string
    string.findAll(string): list<string>
    string.findAll(string, int): list<string>
    timestamp.getFullYear(): int
    timestamp.getFullYear(string): int
    timestamp.getMonth(): int
    timestamp.getMonth(string): int
    timestamp.getDate(): int
    timestamp.getDate(string): int
    timestamp.getDayOfMonth(): int
    timestamp.getDayOfMonth(string): int
    timestamp.getDayOfWeek(): int
    timestamp.getDayOfWeek(string): int
    timestamp.getDayOfYear(): int
    timestamp.getDayOfYear(string): int
    timestamp.getHours(): int
    timestamp.getHours(string): int
    timestamp.getMinutes(): int
    timestamp.getMinutes(string): int
    timestamp.getSeconds(): int
    timestamp.getSeconds(string): int
    timestamp.getMilliseconds(): int
    timestamp.getMilliseconds(string): int
    duration.getHours(): int
    duration.getMinutes(): int
    duration.getSeconds(): int
    duration.getMilliseconds(): int
    list<A>.isSorted(): bool
    list<int>.sum(): int
    list<uint>.sum(): uint
    list<double>.sum(): double
    list<duration>.sum(): duration
    list<A>.min(): A
    list<A>.max(): A
    list<A>.first(): optional<A>
    list<A>.last(): optional<A>
    list<A>.indexOf(A): int
    list<A>.lastIndexOf(A): int
    list<A>.slice(int, int): list<A>
    list<A>.flatten(): list<dyn>
    list<A>.flatten(int): list<dyn>
    list<A>.distinct(): list<A>
    list<A>.reverse(): list<A>
    list<A>.sort(): list<A>
    lists.range(int): list<int>
    sets.contains(list<A>, list<A>): bool
    sets.equivalent(list<A>, list<A>): bool
    sets.intersects(list<A>, list<A>): bool
    optional.of(A): optional<A>
    optional.ofNonZeroValue(A): optional<A>
    optional.none(): optional<A>
    optional<A>.hasValue(): bool
    optional<A>.value(): A
    optional<A>.or(optional<A>): optional<A>
    optional<A>.orValue(A): A
    quantity(string): quantity
    isQuantity(string): bool
    quantity.isInteger(): bool
    quantity.asInteger(): int
    quantity.asApproximateFloat(): double
    sign(quantity): int
    quantity.add(quantity): quantity
    quantity.add(int): quantity
    quantity.sub(quantity): quantity
    quantity.sub(int): quantity
    quantity.isGreaterThan(quantity): bool
    quantity.isLessThan(quantity): bool
    quantity.compareTo(quantity): int
    ip(string): ip
    isIP(string): bool
    ip.isCanonical(string): bool
    ip.family(): int
    ip.isUnspecified(): bool
    ip.isLoopback(): bool
    ip.isLinkLocalMulticast(): bool
    ip.isLinkLocalUnicast(): bool
    ip.isGlobalUnicast(): bool
    string(ip): string
    string(cidr): string
    cidr(string): cidr
    isCIDR(string): bool
    cidr.containsIP(string): bool
    cidr.containsIP(ip): bool
    cidr.containsCIDR(string): bool
    cidr.containsCIDR(cidr): bool
    cidr.ip(): ip
    cidr.masked(): cidr
    cidr.prefixLength(): int
    url(string): url
    isURL(string): bool
    url.getScheme(): string
    url.getHost(): string
    url.getHostname(): string
    url.getPort(): string
    url.getEscapedPath(): string
    url.getQuery(): map<string, list<string>>
    semver(string): semver
    semver(string, bool): semver
    isSemver(string): bool
    isSemver(string, bool): bool
    semver.major(): int
    semver.minor(): int
    semver.patch(): int
    semver.isGreaterThan(semver): bool
    semver.isLessThan(semver): bool
    semver.compareTo(semver): int
    format.named(string): optional<format>
    format.dns1123Label(): format
    format.dns1123Subdomain(): format
    format.dns1035Label(): format
    format.dns1035LabelPrefix(): format
    format.dns1123LabelPrefix(): format
    format.dns1123SubdomainPrefix(): format
    format.qualifiedName(): format
    format.labelValue(): format
    format.uri(): format
    format.uuid(): format
    format.byte(): format
    format.date(): format
    format.datetime(): format
    format.validate(string): optional<list<string>>
";

/// Namespaces whose functions have no target. `ip` and `format` are types too: `ip.isCanonical` and the makers of
/// formats are functions, everything else after them is a method.
fn is_function(receiver: &str, name: &str) -> bool {
    match receiver {
        "strings" | "sets" | "lists" | "optional" | "base64" | "jsonpatch" => true,
        "ip" => name == "isCanonical",
        "format" => name != "validate",
        _ => false,
    }
}

fn read(line: &str) -> (String, Signature) {
    let (call, result) = line.rsplit_once("): ").unwrap_or((line, "dyn"));
    let (name, params) = call.split_once('(').unwrap_or((call, ""));
    let (receiver, name) = match name.rsplit_once('.') {
        Some((receiver, name)) if is_function(receiver, name) => (None, format!("{receiver}.{name}")),
        Some((receiver, name)) => (Some(receiver), name.to_owned()),
        None => (None, name.to_owned()),
    };
    let mut types: Vec<Type> = receiver.map(type_of).into_iter().collect();
    types.extend(split(params).into_iter().map(type_of));
    (name, Signature { method: receiver.is_some(), params: types, result: type_of(result) })
}

/// Splits at commas outside of `<>`.
fn split(text: &str) -> Vec<&str> {
    let (mut out, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                out.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    out.push(text[start..].trim());
    out.retain(|part| !part.is_empty());
    out
}

fn type_of(text: &str) -> Type {
    if let Some((outer, inner)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
        let inner = split(inner);
        return match (outer, inner.as_slice()) {
            ("list", [of]) => Type::list(type_of(of)),
            ("optional", [of]) => Type::optional(type_of(of)),
            ("map", [key, value]) => Type::map(type_of(key), type_of(value)),
            _ => Type::Dyn,
        };
    }
    match text {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "type" => Type::Type,
        "quantity" => Type::Quantity,
        "ip" => Type::Ip,
        "cidr" => Type::Cidr,
        "url" => Type::Url,
        "semver" => Type::Semver,
        "format" => Type::NamedFormat,
        "A" => Type::Param('A'),
        "B" => Type::Param('B'),
        _ => Type::Dyn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        for line in [TABLE, MORE].concat().lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, signature) = read(line);
            let dyn_is_meant = line.contains("dyn");
            let has_dyn = format!("{:?}", (&signature.params, &signature.result)).contains("Dyn");
            assert_eq!(dyn_is_meant, has_dyn, "{line} was read as {name}");
        }
    }
}
