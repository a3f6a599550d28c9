//! The list of hosts: three options whose commas have to agree.

use std::fmt;
use std::net::IpAddr;

use super::name::{Name, is_host, is_socket_path};
use super::settings::Settings;
use super::{ConninfoError, Password};

const DEFAULT_PORT: u16 = 5432;

/// A server to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) place: Place,
    pub(crate) port: u16,
    /// The password for this server, if one is known.
    pub(crate) password: Option<Password>,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The Unix socket in whichever of the usual directories has one.
    DefaultSocket,
    /// The Unix socket in this directory; with a leading `@`, in the abstract namespace.
    Socket(Name),
    /// TCP. The name is what a certificate is checked against; the address spares its look-up.
    /// At least one of them is there.
    Tcp {
        name: Option<String>,
        address: Option<IpAddr>,
    },
}

impl Host {
    /// What a certificate has to say.
    #[cfg_attr(
        not(feature = "tls"),
        cfg_attr(
            not(test),
            expect(dead_code, reason = "there are no certificates without TLS")
        )
    )]
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.place {
            Place::Tcp { name, .. } => name.as_deref(),
            Place::DefaultSocket | Place::Socket(_) => None,
        }
    }

    /// What a line of the password file has to say to match this host.
    pub(super) fn passfile_name(&self) -> String {
        match &self.place {
            Place::DefaultSocket => "localhost".to_owned(),
            // libpq compares with the one directory it was compiled with: Debian's, or upstream's.
            Place::Socket(directory)
                if super::DEFAULT_SOCKET_DIRECTORIES.contains(&&**directory) =>
            {
                "localhost".to_owned()
            }
            Place::Socket(directory) => (**directory).to_owned(),
            Place::Tcp {
                name: Some(name), ..
            } => name.clone(),
            Place::Tcp { address, .. } => address.map_or_else(String::new, |a| a.to_string()),
        }
    }
}

/// The host and port, for messages.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::DefaultSocket => write!(f, "local socket:{}", self.port),
            Place::Socket(directory) => write!(f, "{directory}:{}", self.port),
            Place::Tcp { name, address } => {
                let address = address.map(|a| a.to_string());
                let name = name.as_deref().or(address.as_deref()).unwrap_or_default();
                if name.contains(':') {
                    write!(f, "[{name}]:{}", self.port)
                } else {
                    write!(f, "{name}:{}", self.port)
                }
            }
        }
    }
}

/// Reads `host`, `hostaddr` and `port`. The passwords are still to be found.
pub(super) fn hosts(settings: &Settings) -> Result<Vec<Host>, ConninfoError> {
    let names = list(settings, "host")?;
    let addresses = list(settings, "hostaddr")?;
    let ports = list(settings, "port")?;

    let count = match addresses.len() {
        0 => names.len().max(1),
        count => count,
    };
    if !names.is_empty() && names.len() != count {
        return Err(ConninfoError::new(format!(
            "host has {} entries and hostaddr {count}",
            names.len()
        )));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(ConninfoError::new(format!(
            "port has {} entries for {count} hosts",
            ports.len()
        )));
    }

    (0..count)
        .map(|i| {
            let entry = |list: &[&str]| {
                list.get(i)
                    .copied()
                    .filter(|s| !s.is_empty())
                    .map(String::from)
            };
            let port = if ports.len() == 1 {
                ports.first()
            } else {
                ports.get(i)
            };
            Ok(Host {
                place: place(entry(&names), entry(&addresses), settings.name("host"))?,
                port: port.map_or(Ok(DEFAULT_PORT), |port| {
                    parse_port(port, settings.name("port"))
                })?,
                password: None,
            })
        })
        .collect()
}

fn list<'a>(settings: &'a Settings, keyword: &str) -> Result<Vec<&'a str>, ConninfoError> {
    Ok(settings
        .nonempty(keyword)?
        .map(|value| value.split(',').collect())
        .unwrap_or_default())
}

/// What cannot be looked up is refused, and quoted nowhere: like all parts of a malformed string it may hold
/// a piece of a password. `option` is what messages call the host.
fn place(
    name: Option<String>,
    address: Option<String>,
    option: &str,
) -> Result<Place, ConninfoError> {
    if let Some(name) = name.as_deref().filter(|name| !is_host(name)) {
        if name.contains('@') && !name.starts_with(['/', '@']) {
            return Err(ConninfoError::at_sign_in_host());
        }
        if !is_socket_path(name) {
            return Err(ConninfoError::new(format!(
                "{option} is neither a host name nor an IP address nor the path of a socket (a port is an option \
                 of its own, and key=value pairs are separated by blanks)"
            )));
        }
    }
    if let Some(address) = address {
        let address = address
            .parse()
            .map_err(|_| ConninfoError::new("hostaddr is not a numeric IP address"))?;
        return Ok(Place::Tcp {
            name,
            address: Some(address),
        });
    }
    match name {
        None => Ok(Place::DefaultSocket),
        Some(name) if is_socket_path(&name) => Ok(Place::Socket(Name::directory(&name))),
        Some(name) => Ok(Place::Tcp {
            name: Some(name),
            address: None,
        }),
    }
}

fn parse_port(port: &str, name: &str) -> Result<u16, ConninfoError> {
    if port.is_empty() {
        return Ok(DEFAULT_PORT);
    }
    port.trim_ascii()
        .parse()
        .ok()
        .filter(|&port| port > 0)
        .ok_or_else(|| {
            ConninfoError::new(match name {
                "port" => "the port is not a number from 1 to 65535 \
                     (a \":\", \"/\" or \"@\" in a user name or password has to be percent-encoded)"
                    .to_owned(),
                variable => format!("{variable} is not a number from 1 to 65535"),
            })
        })
}
