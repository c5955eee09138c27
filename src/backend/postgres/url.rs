//! Parser for the URL of a server, which reads it as libpq does:
//! `postgresql://user:password@host:port/database?schema=app&sslmode=verify-full`.
//!
//! No error quotes the URL: if it is malformed, a part of the password may be anywhere in it.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::password::{self, Password};
use super::tls;
use crate::error::{Error, Result};
use crate::location::SCHEMES;

const DEFAULT_PORT: u16 = 5432;
const DEFAULT_SCHEMA: &str = "kvstore";
/// Names of schemas that a server reserves, in addition to those that begin with `pg_`.
const SERVERS_OWN: [&str; 3] = ["information_schema", "crdb_internal", "$user"];
/// Maximum length of a name in PostgreSQL, in bytes. PostgreSQL truncates longer ones.
const MAX_IDENTIFIER: usize = 63;
/// Default folders for the Unix sockets of servers: Debian's and PostgreSQL's own.
const SOCKET_FOLDERS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Whether a connection uses TLS, and what it checks: the values of libpq's `sslmode`, except
/// `allow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Address at which a server listens: the name or IP address of a host, or a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Name(String),
    /// Folder that contains the Unix socket of the server.
    Folder(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) place: Place,
    pub(super) port: u16,
}

impl Host {
    /// Returns the name of the host for TLS and for the password file.
    pub(super) fn name(&self) -> &str {
        match &self.place {
            Place::Name(name) => name,
            Place::Folder(folder) => folder.to_str().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Name(name) if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            Place::Name(name) => write!(f, "{name}:{}", self.port),
            Place::Folder(folder) => write!(f, "{}/.s.PGSQL.{}", folder.display(), self.port),
        }
    }
}

/// TCP keep-alive settings, by which the system detects a server that no longer responds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeepAlive {
    pub(super) on: bool,
    pub(super) idle: Duration,
    pub(super) interval: Duration,
    pub(super) count: u32,
    /// Maximum time for which sent data may stay unacknowledged before the connection fails; zero
    /// for the system's value.
    pub(super) user_timeout: Duration,
}

impl Default for KeepAlive {
    /// Settings that detect within about half a minute that the server's machine does not respond.
    fn default() -> KeepAlive {
        KeepAlive {
            on: true,
            idle: Duration::from_secs(15),
            interval: Duration::from_secs(5),
            count: 3,
            user_timeout: Duration::from_secs(30),
        }
    }
}

/// Settings of a connection, from a URL, the environment and the defaults.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) hosts: Vec<Host>,
    pub(super) user: String,
    password: Option<Password>,
    /// Password file in libpq's format, which is read at each log-in.
    password_file: Option<PathBuf>,
    pub(super) database: String,
    pub(super) schema: String,
    pub(super) tls: TlsMode,
    pub(super) root: Option<String>,
    pub(super) application_name: String,
    pub(super) connect_timeout: Duration,
    pub(super) keep_alive: KeepAlive,
    /// Whether the server must accept writes; `None` if the URL does not specify it.
    pub(super) wants_primary: Option<bool>,
}

/// Settings from libpq's environment variables, and access to the Unix sockets of this machine.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    pub(super) user: Option<String>,
    pub(super) password: Option<Password>,
    pub(super) password_file: Option<PathBuf>,
    /// Returns `true` if the folder contains the Unix socket of a server with this port.
    pub(super) has_socket: Option<fn(&str, u16) -> bool>,
}

impl Environment {
    pub(super) fn of_process() -> Environment {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let bytes = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let default_file = || std::env::home_dir().map(|home| home.join(".pgpass"));
        Environment {
            user: ["PGUSER", "USER", "LOGNAME"]
                .into_iter()
                .find_map(text)
                .or_else(|| whoami::username().ok()),
            password: bytes("PGPASSWORD").map(|value| Password::new(OsString::into_encoded_bytes(value))),
            password_file: bytes("PGPASSFILE").map(PathBuf::from).or_else(default_file),
            has_socket: Some(|folder, port| PathBuf::from(folder).join(format!(".s.PGSQL.{port}")).exists()),
        }
    }
}

impl Settings {
    pub(super) fn of(url: &str, environment: &Environment) -> Result<Settings> {
        let rest = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme));
        let rest = rest
            .ok_or_else(|| Error::invalid("the URL of a server begins with postgresql:// or postgres://"))?;
        if rest.contains('#') {
            return Err(unencoded('#', "%23"));
        }
        let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = before_query.split_once('/').unwrap_or((before_query, ""));
        let (log_in, hosts) = match authority.rsplit_once('@') {
            Some((log_in, hosts)) => (Some(log_in), hosts),
            None => (None, authority),
        };
        // In these cases, the text after the `/` or `?` is the rest of a password, not a path or
        // parameter.
        if path.contains('@') || query.split('&').any(|pair| !pair.contains('=') && pair.contains('@')) {
            return Err(Error::invalid(
                "the URL has an @ after its host: in a user name or password, write / as %2F, ? as \
                %3F, # as %23 and @ as %40",
            ));
        }
        let (user, password) = match log_in.map(|log_in| log_in.split_once(':').unwrap_or((log_in, ""))) {
            Some((user, password)) => (text(user)?, decoded(password)?),
            None => (String::new(), Vec::new()),
        };
        let mut given = Given {
            hosts: hosts.split(',').map(host_and_port).collect::<Result<_>>()?,
            user: Some(user).filter(|user| !user.is_empty()),
            password: Some(password).filter(|password| !password.is_empty()).map(Password::new),
            database: Some(text(path)?).filter(|name| !name.is_empty()),
            password_file: environment.password_file.clone(),
            ..Given::default()
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Error::invalid(
                    "a parameter of the URL is not of the form name=value: write a & in a value as %26",
                )
            })?;
            given.take(name, value)?;
        }
        given.complete(environment)
    }

    pub(super) fn has_several_hosts(&self) -> bool {
        self.hosts.len() > 1
    }

    /// Returns the password for a host: from the URL, else from the environment, else from the
    /// password file.
    pub(super) fn password_at(&self, host: &Host) -> Option<Password> {
        let of_file = || {
            let name = match &host.place {
                Place::Folder(folder) if SOCKET_FOLDERS.iter().any(|known| folder.as_os_str() == *known) => {
                    "localhost"
                }
                _ => host.name(),
            };
            let log_in =
                password::LogIn { host: name, port: host.port, database: &self.database, user: &self.user };
            password::of_file(self.password_file.as_deref()?, &log_in)
        };
        self.password.clone().or_else(of_file)
    }

    /// Returns the path of the password file if it exists and was ignored, because other users may
    /// read it.
    pub(super) fn unused_password_file(&self) -> Option<&Path> {
        self.password_file.as_deref().filter(|path| password::is_for_others(path))
    }
}

/// Settings from a URL, before defaults are added.
#[derive(Default)]
struct Given {
    hosts: Vec<(String, Option<u16>)>,
    user: Option<String>,
    password: Option<Password>,
    password_file: Option<PathBuf>,
    database: Option<String>,
    schema: Option<String>,
    tls: Option<TlsMode>,
    root: Option<String>,
    application_name: Option<String>,
    connect_timeout: Option<Duration>,
    keep_alive: KeepAlive,
    wants_primary: Option<bool>,
}

impl Given {
    fn take(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "host" => {
                let ports: Vec<_> = self.hosts.iter().map(|(_, port)| *port).collect();
                let hosts: Vec<_> = text(value)?.split(',').map(str::to_owned).collect();
                let port_at = |at: usize| ports.get(at).or(ports.first()).copied().flatten();
                self.hosts = hosts.into_iter().enumerate().map(|(at, host)| (host, port_at(at))).collect();
            }
            "port" => {
                let ports = text(value)?;
                let ports: Vec<_> = ports.split(',').map(port).collect::<Result<_>>()?;
                for (at, (_, port)) in self.hosts.iter_mut().enumerate() {
                    *port = ports.get(at).or(ports.first()).copied();
                }
            }
            "user" => self.user = Some(text(value)?),
            "password" => self.password = Some(Password::new(decoded(value)?)),
            "passfile" => self.password_file = Some(text(value)?.into()),
            "dbname" => self.database = Some(text(value)?),
            "schema" => self.schema = Some(text(value)?),
            "sslrootcert" => self.root = Some(text(value)?),
            "application_name" => self.application_name = Some(text(value)?),
            "sslmode" => {
                self.tls = Some(match &*text(value)? {
                    "disable" => TlsMode::Disable,
                    "prefer" => TlsMode::Prefer,
                    "require" => TlsMode::Require,
                    "verify-ca" => TlsMode::VerifyCa,
                    "verify-full" => TlsMode::VerifyFull,
                    _ => {
                        return Err(Error::invalid(
                            "sslmode is none of disable, prefer, require, verify-ca and verify-full",
                        ));
                    }
                });
            }
            "target_session_attrs" => {
                self.wants_primary = Some(match &*text(value)? {
                    "any" => false,
                    "read-write" | "primary" => true,
                    _ => {
                        return Err(Error::invalid(
                            "target_session_attrs is none of any, read-write and primary",
                        ));
                    }
                });
            }
            "connect_timeout" => {
                self.connect_timeout = Some(seconds(name, value)?).filter(|time| !time.is_zero())
            }
            "keepalives" => self.keep_alive.on = number(name, value)? != 0,
            "keepalives_idle" => self.keep_alive.idle = at_least_a_second(seconds(name, value)?),
            "keepalives_interval" => self.keep_alive.interval = at_least_a_second(seconds(name, value)?),
            "keepalives_count" => self.keep_alive.count = number(name, value)?.clamp(1, 127),
            "tcp_user_timeout" => {
                self.keep_alive.user_timeout = Duration::from_millis(number(name, value)?.into());
            }
            _ => {
                return Err(Error::invalid(
                    "the URL has an unknown parameter; known are host, port, user, password, passfile, \
                    dbname, schema, sslmode, sslrootcert, application_name, connect_timeout, \
                    keepalives, keepalives_idle, keepalives_interval, keepalives_count, \
                    tcp_user_timeout and target_session_attrs (in a password, write ? as %3F)",
                ));
            }
        }
        Ok(())
    }

    fn complete(self, environment: &Environment) -> Result<Settings> {
        let user = self.user.or_else(|| environment.user.clone());
        let user = user.ok_or_else(|| {
            Error::invalid(
                "the URL names no user, PGUSER is not set, and the system has no name for this user: write \
                postgresql://USER@HOST/…",
            )
        })?;
        let schema = self.schema.unwrap_or_else(|| DEFAULT_SCHEMA.to_owned());
        if schema.is_empty() || schema.len() > MAX_IDENTIFIER {
            return Err(Error::invalid(format!(
                "the schema name is empty or too long: it has 1 to {MAX_IDENTIFIER} bytes"
            )));
        }
        if schema.starts_with("pg_") || SERVERS_OWN.contains(&&*schema) {
            return Err(Error::invalid(format!(
                "the schema name is reserved by the server (pg_…, {}): choose another one (the default \
                is {DEFAULT_SCHEMA})",
                SERVERS_OWN.join(", ")
            )));
        }
        let weakest = match &self.root {
            Some(root) if root == tls::SYSTEM => TlsMode::VerifyFull,
            _ => TlsMode::Prefer,
        };
        let tls = self.tls.unwrap_or(weakest);
        if weakest == TlsMode::VerifyFull && tls != TlsMode::VerifyFull {
            return Err(Error::invalid(
                "sslrootcert=system requires sslmode=verify-full, because anyone can get a certificate \
                from those authorities",
            ));
        }
        let host =
            |(name, port): (String, Option<u16>)| placed(name, port.unwrap_or(DEFAULT_PORT), environment);
        Ok(Settings {
            hosts: self.hosts.into_iter().map(host).collect::<Result<_>>()?,
            password: self.password.or_else(|| environment.password.clone()),
            password_file: self.password_file,
            database: self.database.unwrap_or_else(|| user.clone()),
            user,
            schema,
            tls,
            root: self.root,
            application_name: self.application_name.unwrap_or_else(|| "kvstore".to_owned()),
            connect_timeout: self.connect_timeout.unwrap_or(Duration::from_secs(10)),
            keep_alive: self.keep_alive,
            wants_primary: self.wants_primary,
        })
    }
}

fn placed(name: String, port: u16, environment: &Environment) -> Result<Host> {
    let place = if name.is_empty() {
        let has_socket = environment.has_socket.unwrap_or(|_, _| false);
        match SOCKET_FOLDERS.into_iter().find(|folder| has_socket(folder, port)) {
            Some(folder) => Place::Folder(folder.into()),
            None => Place::Name("localhost".to_owned()),
        }
    } else if name.starts_with('/') {
        Place::Folder(name.into())
    } else if name.chars().all(|c| c.is_ascii_alphanumeric() || "-._:%".contains(c)) {
        Place::Name(name)
    } else {
        return Err(Error::invalid(
            "the host in the URL is neither a name, an address nor the directory of a socket",
        ));
    };
    Ok(Host { place, port })
}

/// Parses `host`, `host:port`, `[address]:port`, or an empty text.
fn host_and_port(part: &str) -> Result<(String, Option<u16>)> {
    let (host, rest) = match part.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest
                .split_once(']')
                .ok_or_else(|| Error::invalid("the host in the URL has a [ without a ]"))?;
            let rest = match rest {
                "" => None,
                rest => Some(rest.strip_prefix(':').ok_or_else(|| {
                    Error::invalid(
                        "the host in the URL is followed by something other than :port after its ]",
                    )
                })?),
            };
            (host, rest)
        }
        None => match part.split_once(':') {
            Some((host, rest)) => (host, Some(rest)),
            None => (part, None),
        },
    };
    let port = rest.filter(|rest| !rest.is_empty()).map(port).transpose()?;
    Ok((text(host)?, port))
}

fn port(digits: &str) -> Result<u16> {
    let wrong = || {
        Error::invalid(
            "the port in the URL is not a number from 1 to 65535 (in a user name or password, write : \
            as %3A, / as %2F and @ as %40)",
        )
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    digits.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)
}

fn number(name: &str, value: &str) -> Result<u32> {
    value
        .parse()
        .ok()
        .filter(|number| *number <= 1_000_000_000)
        .ok_or_else(|| Error::invalid(format!("{name} in the URL is not a number from 0 to 1000000000")))
}

fn seconds(name: &str, value: &str) -> Result<Duration> {
    number(name, value).map(|seconds| Duration::from_secs(seconds.min(32_767).into()))
}

fn at_least_a_second(time: Duration) -> Duration {
    time.max(Duration::from_secs(1))
}

/// Returns the bytes of `part`, a component of a URL, with its `%` sequences decoded.
fn decoded(part: &str) -> Result<Vec<u8>> {
    let mut bytes = part.bytes();
    let mut plain = Vec::with_capacity(part.len());
    while let Some(byte) = bytes.next() {
        plain.push(if byte == b'%' {
            let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
            let value = digit(bytes.next()).zip(digit(bytes.next())).map(|(high, low)| high * 16 + low);
            let value = value.and_then(|value| u8::try_from(value).ok()).filter(|value| *value != 0);
            value.ok_or_else(|| {
                Error::invalid(
                    "the URL has a % that is not followed by two hexadecimal digits other than 00: \
                    write % as %25",
                )
            })?
        } else if byte == 0 {
            return Err(Error::invalid("the URL contains a NUL"));
        } else {
            byte
        });
    }
    Ok(plain)
}

fn text(part: &str) -> Result<String> {
    String::from_utf8(decoded(part)?)
        .map_err(|_| Error::invalid("a part of the URL is not UTF-8 after decoding"))
}

fn unencoded(what: char, instead: &str) -> Error {
    Error::invalid(format!("the URL contains a {what}: write it as {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Result<Settings> {
        Settings::of(url, &Environment { user: Some("me".into()), ..Environment::default() })
    }

    #[test]
    fn all_parts_of_url_are_parsed() {
        let found = of("postgresql://ada:ge%3Aheim%40@db.example:6543/app?schema=s%20x&sslmode=verify-full&sslrootcert=/a/b\
                        &application_name=x&connect_timeout=3&tcp_user_timeout=1500&keepalives_idle=7")
        .unwrap();
        assert_eq!(found.hosts, [Host { place: Place::Name("db.example".into()), port: 6543 }]);
        assert_eq!((&*found.user, &*found.database, &*found.schema), ("ada", "app", "s x"));
        assert_eq!(found.password_at(&found.hosts[0]).unwrap().as_bytes(), b"ge:heim@");
        assert_eq!((found.tls, found.root.as_deref()), (TlsMode::VerifyFull, Some("/a/b")));
        assert_eq!((&*found.application_name, found.connect_timeout), ("x", Duration::from_secs(3)));
        assert_eq!(found.keep_alive.user_timeout, Duration::from_millis(1500));
        assert_eq!(found.keep_alive.idle, Duration::from_secs(7));
    }

    #[test]
    fn missing_url_parts_use_libpq_defaults() {
        let found = of("postgres://").unwrap();
        assert_eq!(found.hosts, [Host { place: Place::Name("localhost".into()), port: 5432 }]);
        assert_eq!((&*found.user, &*found.database, &*found.schema), ("me", "me", "kvstore"));
        assert_eq!((found.tls, found.password), (TlsMode::Prefer, None));
        let here = Environment {
            user: Some("me".into()),
            has_socket: Some(|folder, port| folder == "/tmp" && port == 5433),
            ..Environment::default()
        };
        let found = Settings::of("postgresql://:5433/x", &here).unwrap();
        assert_eq!(found.hosts, [Host { place: Place::Folder("/tmp".into()), port: 5433 }]);
    }

    #[test]
    fn url_hosts_are_names_addresses_or_folders() {
        let hosts = |url: &str| of(url).unwrap().hosts.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(hosts("postgresql://a:1,b,[::1]:3/x"), ["a:1", "b:5432", "[::1]:3"]);
        assert_eq!(hosts("postgresql:///x?host=/run/pg"), ["/run/pg/.s.PGSQL.5432"]);
        assert_eq!(hosts("postgresql://:7/x?host=/run/pg,/b"), ["/run/pg/.s.PGSQL.7", "/b/.s.PGSQL.7"]);
        assert_eq!(hosts("postgresql:///x?host=/run/pg&port=9"), ["/run/pg/.s.PGSQL.9"]);
        assert_eq!(hosts("postgresql://%2Frun%2Fpg:8/x"), ["/run/pg/.s.PGSQL.8"]);
    }

    #[test]
    fn url_password_takes_precedence_over_environment() {
        let environment = Environment {
            user: Some("me".into()),
            password: Some(Password::new(b"of env".to_vec())),
            ..Environment::default()
        };
        for (url, expected) in [("postgresql://u@h", "of env"), ("postgresql://u:of%20url@h", "of url")] {
            let found = Settings::of(url, &environment).unwrap();
            assert_eq!(found.password_at(&found.hosts[0]).unwrap().as_bytes(), expected.as_bytes());
        }
    }

    #[test]
    fn malformed_urls_are_refused_without_quoting_them() {
        for url in [
            "postgresql://u:SECRET/x@h/d",
            "postgresql://u:12/SECRET@h/d",
            "postgresql://u:SECRET?x@h/d",
            "postgresql://u:SECRET?x=SECRET@h/d",
            "postgresql://u:SECRET#x@h/d",
            "postgresql://u:SECRET%@h/d",
            "postgresql://u:SECRET%0@h/d",
            "postgresql://u:SECRET%00@h/d",
            "postgresql://u:SECRET%zz@h/d",
            "postgresql://u%ff:SECRET@h/d",
            "postgresql://u:SECRET@h:SECRET/d",
            "postgresql://u:SECRET@h:0/d",
            "postgresql://u:SECRET@h:65536/d",
            "postgresql://u:SECRET@h:+1/d",
            "postgresql://u:SECRET@[::1/d",
            "postgresql://u:SECRET@[::1]SECRET/d",
            "postgresql://u:SECRET@h SECRET/d",
            "postgresql://u:SECRET@h/d?SECRET",
            "postgresql://u:SECRET@h/d?SECRET=SECRET",
            "postgresql://u:SECRET@h/d?sslmode=SECRET",
            "postgresql://u:SECRET@h/d?schema=",
            "postgresql://u:SECRET@h/d?schema=pg_SECRET",
            "postgresql://u:SECRET@h/d?schema=pg_catalog",
            "postgresql://u:SECRET@h/d?schema=information_schema",
            "postgresql://u:SECRET@h/d?schema=$user",
            "postgresql://u:SECRET@h/d?schema=0123456789012345678901234567890123456789012345678901234567890123",
            "postgresql://u:SECRET@h/d?connect_timeout=SECRET",
            "postgresql://u:SECRET@h/d?keepalives_idle=-1",
            "postgresql://u:SECRET@h/d?target_session_attrs=SECRET",
            "postgresql://u:SECRET@h/d?sslrootcert=system&sslmode=require",
            "postgresql://u:SECRET@h/d?options=SECRET",
            "postgresql:/SECRET",
        ] {
            let error = of(url).unwrap_err();
            assert!(!error.to_string().contains("SECRET"), "{url}: {error}");
        }
    }

    #[test]
    fn debug_output_of_settings_hides_password() {
        let text = format!("{:?}", of("postgresql://u:SECRET@h/d").unwrap());
        assert!(!text.contains("SECRET") && !text.contains(&format!("{:?}", b"SECRET")), "{text}");
    }
}
