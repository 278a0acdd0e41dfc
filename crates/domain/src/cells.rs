//! Cells: independent clusters that serve different tenants, each with its own database and queue.
//!
//! A run's id carries the number of the cell that stores it ([`RunId::cell`](crate::ids::RunId::cell)). A tenant's new runs go to
//! one cell. A file that all gateways share decides which one.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::ids::TenantId;
use crate::rendezvous;

/// Largest weight of a cell.
const WEIGHT_MAX: u32 = 100;
/// The version of the file's layout.
const SCHEMA: u32 = 1;

/// A cell's number, 0 to [`CellId::MAX`]. Ids of runs have 12 bits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId(u16);

impl CellId {
    /// The greatest number.
    pub const MAX: u16 = 0xfff;

    /// The cell of that number; `None` if it is greater than [`CellId::MAX`].
    pub const fn new(number: u16) -> Option<Self> {
        if number <= Self::MAX { Some(Self(number)) } else { None }
    }

    /// Its number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The cell whose number is the lowest 12 bits of `bits`.
    pub(crate) const fn of_bits(bits: u16) -> Self {
        Self(bits & Self::MAX)
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text is not the number of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cell's number must be 0 to {}", CellId::MAX)]
pub struct InvalidCell;

impl FromStr for CellId {
    type Err = InvalidCell;

    fn from_str(text: &str) -> Result<Self, InvalidCell> {
        text.parse().ok().and_then(Self::new).ok_or(InvalidCell)
    }
}

/// All cells, and which tenants they serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells {
    cells: BTreeMap<CellId, Cell>,
    /// Tenants whose cell does not follow from the weights.
    tenants: BTreeMap<TenantId, CellId>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its name when tenants are divided, which is its number.
    name: String,
    weight: u32,
    /// Where its gateways serve HTTP: `http://HOST:PORT` or `https://HOST:PORT`; at least one.
    pub http: Vec<String>,
    /// Where its gateways serve gRPC, in the same form; at least one.
    pub grpc: Vec<String>,
}

/// A file of cells that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CellsError {
    /// It is not TOML of this layout.
    #[error("{0}")]
    Syntax(String),
    /// All its problems.
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    cells: Vec<Entry>,
    #[serde(default)]
    tenants: BTreeMap<String, u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    number: u16,
    #[serde(default = "one")]
    weight: u32,
    http: Vec<String>,
    grpc: Vec<String>,
}

const fn one() -> u32 {
    1
}

impl Cells {
    /// Parses a file of cells. Reports all problems at once.
    pub fn parse(toml: &str) -> Result<Self, CellsError> {
        let file: File = toml::from_str(toml).map_err(|e| CellsError::Syntax(e.to_string()))?;
        let mut problems = Vec::new();
        if file.schema != SCHEMA {
            problems.push(format!("schema is {}, this version reads {SCHEMA}", file.schema));
        }
        let mut cells = BTreeMap::new();
        for entry in file.cells {
            let at = format!("cell {}", entry.number);
            let Some((id, cell)) = cell(entry, &mut problems) else { continue };
            if cells.insert(id, cell).is_some() {
                problems.push(format!("{at} is listed twice"));
            }
        }
        if cells.values().all(|cell| cell.weight == 0) {
            problems.push("no cell has a weight above 0".to_owned());
        }
        let mut tenants = BTreeMap::new();
        for (tenant, number) in file.tenants {
            let Some(id) = CellId::new(number).filter(|id| cells.contains_key(id)) else {
                problems.push(format!("tenant `{tenant}`: there is no cell {number}"));
                continue;
            };
            match TenantId::new(tenant) {
                Ok(tenant) => drop(tenants.insert(tenant, id)),
                Err(error) => problems.push(format!("tenants: {error}")),
            }
        }
        if problems.is_empty() { Ok(Self { cells, tenants }) } else { Err(CellsError::Invalid(problems)) }
    }

    /// The cell that a tenant's new runs go to.
    pub fn of_tenant(&self, tenant: &TenantId) -> CellId {
        if let Some(cell) = self.tenants.get(tenant) {
            return *cell;
        }
        let places = self.cells.values().map(|cell| (cell.name.as_str(), cell.weight));
        let chosen = rendezvous::choose(tenant.as_str(), places);
        chosen.and_then(|index| self.cells.keys().nth(index)).copied().unwrap_or_default()
    }

    /// The cell of that number.
    pub fn get(&self, id: CellId) -> Option<&Cell> {
        self.cells.get(&id)
    }

    /// All cells, by number.
    pub fn iter(&self) -> impl Iterator<Item = (CellId, &Cell)> {
        self.cells.iter().map(|(id, cell)| (*id, cell))
    }
}

fn cell(entry: Entry, problems: &mut Vec<String>) -> Option<(CellId, Cell)> {
    let Entry { number, weight, http, grpc } = entry;
    let at = format!("cell {number}");
    if weight > WEIGHT_MAX {
        problems.push(format!("{at}: weight must be 0 to {WEIGHT_MAX} (got {weight})"));
    }
    for (field, addresses) in [("http", &http), ("grpc", &grpc)] {
        if addresses.is_empty() {
            problems.push(format!("{at}: {field} lists no address of a gateway"));
        }
        for address in addresses.iter().filter(|address| !is_address(address)) {
            problems.push(format!(
                "{at}: {field}: `{address}` must be http://HOST:PORT or https://HOST:PORT, without a path"
            ));
        }
    }
    let Some(id) = CellId::new(number) else {
        problems.push(format!("cell {number}: {InvalidCell}"));
        return None;
    };
    Some((id, Cell { name: number.to_string(), weight, http, grpc }))
}

fn is_address(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let Some((host, port)) = rest.and_then(|rest| rest.rsplit_once(':')) else { return false };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    !host.is_empty() && host.bytes().all(is_host) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        schema = 1

        [[cells]]
        number = 0
        http = ["http://a.example:8080"]
        grpc = ["http://a.example:8081"]

        [[cells]]
        number = 7
        weight = 2
        http = ["https://b.example:443", "http://[::1]:8080"]
        grpc = ["http://10.0.0.7:8081"]

        [tenants]
        acme = 0
    "#;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    #[test]
    fn a_tenant_has_one_cell_and_exceptions_come_first() {
        let cells = Cells::parse(FILE).unwrap();
        let seven = CellId::new(7).unwrap();
        assert_eq!(cells.of_tenant(&tenant("acme")), CellId::default());
        let tenants: Vec<_> =
            (0..300).map(|number| cells.of_tenant(&tenant(&format!("t{number}")))).collect();
        let in_seven = tenants.iter().filter(|cell| **cell == seven).count();
        assert!(
            (160..240).contains(&in_seven),
            "{in_seven} of 300 in the cell with two thirds of the weight"
        );
        assert!(cells.get(seven).is_some_and(|cell| cell.http.len() == 2));
        assert!(cells.get(CellId::new(1).unwrap()).is_none());
    }

    #[test]
    fn every_problem_of_a_file_is_reported() {
        let file = r#"
            schema = 2
            [[cells]]
            number = 4096
            weight = 101
            http = ["http://a:1/x"]
            grpc = []
            [[cells]]
            number = 1
            weight = 0
            http = ["a:1"]
            grpc = ["http://a:0"]
            [[cells]]
            number = 1
            weight = 0
            http = ["http://user:secret@a:1"]
            grpc = ["https://a:1"]
            [tenants]
            acme = 3
            "b b" = 1
        "#;
        let Err(CellsError::Invalid(problems)) = Cells::parse(file) else { panic!("it is accepted") };
        assert_eq!(problems.len(), 12, "{problems:#?}");
        assert!(matches!(Cells::parse("schema = 1\ncells = 1"), Err(CellsError::Syntax(_))));
    }

    #[test]
    fn numbers_of_cells_are_0_to_4095() {
        assert_eq!("4095".parse(), Ok(CellId(4095)));
        for text in ["4096", "-1", "", "x", "70000"] {
            assert_eq!(text.parse::<CellId>(), Err(InvalidCell), "{text}");
        }
    }
}
