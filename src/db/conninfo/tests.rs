#[cfg(feature = "tls")]
mod documented;
mod files;
mod shown;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use super::*;

/// An environment of exactly these variables.
fn resolve(url: &str, variables: &[(&str, &str)]) -> Result<Conninfo, ConninfoError> {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    Conninfo::resolve(url, &|name| variables.get(name).map(OsString::from))
}

fn resolved(url: &str, variables: &[(&str, &str)]) -> Conninfo {
    resolve(url, variables).unwrap_or_else(|e| panic!("{url}: {e}"))
}

fn refusal(url: &str) -> String {
    resolve(url, &[]).expect_err(url).to_string()
}

fn password_of(host: &Host) -> Option<&str> {
    let password = host.password.as_ref()?;
    Some(std::str::from_utf8(password.bytes()).unwrap())
}

fn tcp(name: &str) -> Place {
    Place::Tcp {
        name: Some(name.to_owned()),
        address: None,
    }
}

fn write(directory: &Path, name: &str, mode: u32, content: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_empty_string_means_the_local_server_and_the_user_of_the_process() {
    let target = resolved("", &[("HOME", "/nonexistent")]);
    let user = operating_system_user().unwrap();
    assert_eq!(*target.user, user);
    assert_eq!(*target.dbname, user);
    assert_eq!(target.hosts.len(), 1);
    assert_eq!(target.hosts[0].place, Place::DefaultSocket);
    assert_eq!(target.hosts[0].port, 5432);
    assert_eq!(password_of(&target.hosts[0]), None);
    assert_eq!(target.tls.mode, SslMode::Prefer);
    assert_eq!(target.connect_timeout, None);
    assert!(target.tcp.keepalives);
    assert_eq!(target.options, "");
}

#[test]
fn the_database_is_named_like_the_user_unless_it_is_given() {
    let dbname = |string, environment: &[_]| (*resolved(string, environment).dbname).to_owned();
    let environment = [("PGDATABASE", "d")];
    assert_eq!(dbname("user=u", &[]), "u");
    assert_eq!(dbname("user=u dbname=d", &[]), "d");
    assert_eq!(dbname("user=u dbname=''", &environment), "u");
    assert_eq!(dbname("postgresql://u@h/", &environment), "d");
}

#[test]
fn hosts_addresses_and_ports_are_matched_one_by_one() {
    let target = resolved(
        "host=a,,/sock,@abs hostaddr=10.0.0.1,::1,, port=1,,3,4",
        &[],
    );
    let places: Vec<_> = target.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(places, ["a:1", "[::1]:5432", "/sock:3", "@abs:4"]);
    assert_eq!(target.hosts[1].name(), None);
    assert_eq!(target.hosts[0].name(), Some("a"));

    let target = resolved("host=a,b port=7", &[]);
    assert_eq!(
        target.hosts.iter().map(|h| h.port).collect::<Vec<_>>(),
        [7, 7]
    );

    for string in [
        "host=a,b hostaddr=10.0.0.1",
        "host=a,b port=1,2,3",
        "hostaddr=10.0.0.1 port=1,2",
        "hostaddr=example.org",
        "host=a port=0",
        "host=a port=65536",
        "host=a port=5432x",
        "host=a port=-1",
    ] {
        refusal(string);
    }
}

#[test]
fn timeouts_are_in_libpqs_units() {
    let seconds = |string| resolved(string, &[]).connect_timeout.map(|t| t.as_secs());
    assert_eq!(seconds("connect_timeout=10"), Some(10));
    assert_eq!(seconds("connect_timeout=1"), Some(2));
    assert_eq!(seconds("connect_timeout=0"), None);
    assert_eq!(seconds("connect_timeout=-5"), None);
    assert_eq!(seconds("connect_timeout=' 7 '"), Some(7));
    for string in [
        "connect_timeout=1s",
        "connect_timeout=''",
        "connect_timeout=1.5",
        "keepalives_idle=x",
    ] {
        refusal(string);
    }

    let tcp = resolved(
        "tcp_user_timeout=10000 keepalives_idle=30 keepalives_interval=10 keepalives_count=3",
        &[],
    )
    .tcp;
    assert_eq!(tcp.user_timeout, Some(Duration::from_secs(10)));
    assert_eq!(tcp.keepalives_idle, Some(Duration::from_secs(30)));
    assert_eq!(tcp.keepalives_interval, Some(Duration::from_secs(10)));
    assert_eq!(tcp.keepalives_count, Some(3));
    assert!(!resolved("keepalives=0", &[]).tcp.keepalives);
}

#[test]
fn the_application_name_defaults_to_ours_cut_between_characters() {
    let name = |string: &str, environment: &[(&str, &str)], default: &str| {
        let mut target = resolved(string, environment);
        target.set_default_application_name(default.to_owned());
        target.application_name.unwrap()
    };
    assert_eq!(name("", &[], "dislock:job"), "dislock:job");
    assert_eq!(name("application_name=mine", &[], "dislock:job"), "mine");
    assert_eq!(name("", &[("PGAPPNAME", "mine")], "dislock:job"), "mine");
    assert_eq!(
        name("fallback_application_name=mine", &[], "dislock:job"),
        "mine"
    );
    let long = name("", &[], &format!("dislock:{}é", "x".repeat(54)));
    assert_eq!(long, format!("dislock:{}", "x".repeat(54)));
}

#[test]
fn the_time_zone_of_the_environment_reaches_the_server() {
    assert_eq!(
        resolved("", &[("PGTZ", "Europe/Paris")]).options,
        "-c TimeZone=Europe/Paris"
    );
    assert_eq!(
        resolved("options='-c a=b'", &[("PGTZ", "x y")]).options,
        "-c a=b -c TimeZone=x\\ y"
    );
    assert_eq!(resolved("", &[("PGOPTIONS", "-c a=b")]).options, "-c a=b");
}

#[test]
#[cfg(feature = "tls")]
fn the_mode_of_tls_follows_from_what_is_given() {
    let mode = |string: &str, environment: &[(&str, &str)]| resolved(string, environment).tls.mode;
    assert_eq!(mode("", &[("PGSSLMODE", "require")]), SslMode::Require);
    assert_eq!(
        mode("sslmode=allow", &[("PGSSLMODE", "require")]),
        SslMode::Allow
    );
    assert_eq!(mode("", &[("PGREQUIRESSL", "1")]), SslMode::Require);
    assert_eq!(mode("sslrootcert=system", &[]), SslMode::VerifyFull);
    assert_eq!(
        mode("", &[("PGSSLROOTCERT", "system")]),
        SslMode::VerifyFull
    );
    let direct = resolved("sslmode=require sslnegotiation=direct", &[]).tls;
    assert_eq!(direct.negotiation, SslNegotiation::Direct);
    for string in [
        "sslmode=verify-ca sslrootcert=system",
        "sslmode=require sslrootcert=system",
        "sslnegotiation=direct",
        "sslmode=prefer sslnegotiation=direct",
        "sslmode=",
        "sslmode=Require",
        "ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2",
        "ssl_min_protocol_version=SSLv3",
    ] {
        refusal(string);
    }
}

#[test]
#[cfg(not(feature = "tls"))]
fn without_tls_the_modes_that_need_it_are_refused() {
    for mode in ["require", "verify-ca", "verify-full"] {
        assert!(refusal(&format!("sslmode={mode}")).contains("no TLS"));
    }
    for mode in ["disable", "allow", "prefer"] {
        resolved(&format!("sslmode={mode}"), &[]);
    }
}

#[test]
fn security_that_cannot_be_given_is_refused_by_name() {
    for (string, named) in [
        ("gssencmode=require", "gssencmode"),
        ("sslcrldir=/x", "sslcrldir"),
        ("scram_client_key=x", "scram_client_key"),
        ("scram_server_key=x", "scram_server_key"),
        ("replication=database", "replication"),
        ("replication=1", "replication"),
        ("min_protocol_version=3.2", "min_protocol_version"),
        (
            "ssl_max_protocol_version=TLSv1.1",
            "ssl_max_protocol_version",
        ),
        ("require_auth=scram-sha-256,!md5", "require_auth"),
        ("require_auth=!md5,none", "require_auth"),
        ("require_auth=md5,md5", "require_auth"),
        ("require_auth=kerberos", "require_auth"),
        ("target_session_attrs=readwrite", "target_session_attrs"),
        ("load_balance_hosts=yes", "load_balance_hosts"),
        ("channel_binding=on", "channel_binding"),
        ("sslcertmode=never", "sslcertmode"),
        ("sslnegotiation=tls", "sslnegotiation"),
    ] {
        let error = refusal(string);
        assert!(error.contains(named), "{string}: {error}");
    }
}

#[test]
fn options_that_do_not_matter_here_are_accepted() {
    resolved(
        "client_encoding=latin1 sslcompression=1 krbsrvname=x gsslib=gssapi gssdelegation=1 \
         gssencmode=prefer replication=off max_protocol_version=latest min_protocol_version=3.0 \
         sslkeylogfile=/x sslpassword=x oauth_issuer=x oauth_client_id=y oauth_scope=z \
         fallback_application_name=x",
        &[],
    );
}

#[test]
fn required_methods_are_those_that_are_listed() {
    let methods = |list: &str| resolved(&format!("require_auth={list}"), &[]).required_auth;
    let scram = methods("scram-sha-256");
    assert!(scram.allows(AuthMethod::ScramSha256));
    assert!(!scram.allows(AuthMethod::Password) && !scram.allows_none());
    assert!(methods("md5,none").allows_none());
    let not_plain = methods("!password,!md5");
    assert!(not_plain.allows(AuthMethod::ScramSha256) && not_plain.allows_none());
    assert!(!not_plain.allows(AuthMethod::Password) && !not_plain.allows(AuthMethod::Md5));
    assert!(!methods("!none").allows_none());
}

/// Nobody is to look for it in the string.
#[test]
fn a_bad_value_from_the_environment_is_reported_by_its_variable() {
    for (variable, value, word) in [
        ("PGPORT", "x", "PGPORT is not a number from 1 to 65535"),
        ("PGSSLMODE", "x", "invalid PGSSLMODE; it can be disable"),
        (
            "PGCONNECT_TIMEOUT",
            "x",
            "PGCONNECT_TIMEOUT has to be an integer",
        ),
        (
            "PGSSLMINPROTOCOLVERSION",
            "x",
            "invalid PGSSLMINPROTOCOLVERSION;",
        ),
    ] {
        let refused = resolve("postgresql://u@h/d", &[(variable, value)]);
        let message = refused.unwrap_err().to_string();
        assert!(message.starts_with(word), "{message}");
    }
    let by_string = resolve("postgresql://u@h:x/d", &[("PGPORT", "x")]);
    assert!(by_string.unwrap_err().to_string().starts_with("the port"));
}

#[test]
fn an_at_sign_in_a_database_name_has_to_be_percent_encoded() {
    for string in [
        "postgresql://u:p@ss/word@h/app",
        "postgresql://u:p/word@h/app",
        "postgresql://u:1/word@h/app",
        "postgresql://h/a@b",
    ] {
        let refused = refusal(string);
        assert!(refused.contains("has to be percent-encoded"), "{refused}");
    }
    let target = resolved("postgresql://u@h/a%40b?user=u@h", &[]);
    assert_eq!((&*target.dbname, &*target.user), ("a@b", "u@h"));
}

#[test]
fn a_target_is_described_without_its_password() {
    let target = resolved("postgresql://me:hunter2@h1,[::1]:6000/app", &[]);
    assert_eq!(target.describe(), "h1:5432,[::1]:6000/app as me");
    assert!(!format!("{target:?}").contains("hunter2"));
}

/// However a string is malformed, nothing of the password may be quoted: not even a piece that ended
/// up in another field because a character was not escaped.
#[test]
fn no_message_contains_the_password_or_a_piece_of_it() {
    const PIECES: [&str; 2] = ["hunter", "secret"];
    for separator in [
        "",
        "@",
        "@@",
        "@,@",
        "@a,",
        "/",
        ":",
        "?",
        "#",
        "%",
        "%2",
        "%00",
        " ",
        "'",
        "\\",
        "=",
        "&",
        ",",
        "[",
        "@secret/",
        "@hunter?",
        "@hunter?hunter=",
    ] {
        let password = format!("hunter{separator}secret");
        for string in [
            format!("postgresql://me:{password}@h/app"),
            format!("postgresql://me:{password}@h:port/app"),
            format!("postgresql://me:{password}@h/app?unknown=1"),
            format!("postgresql://me:{password}@h/app?sslmode=x"),
            format!("postgresql://me:{password}@h/app?connect_timeout=x"),
            format!("postgresql://me:{password}@[h/app"),
            format!("postgresql://me:{password}@h,h2:1,h3/app?port=1,2"),
            format!("postgresql:/me:{password}@h/app"),
            format!("http://me:{password}@h/app"),
            format!("x {password}"),
            format!("host=h password={password} user=me"),
            format!("host=h password={password}"),
            format!("host=h password='{password}"),
            format!("host=h password='{password}' port=x"),
            format!("host=h password='{password}' sslmode"),
            format!("host=h password='{password}' nonsense=1"),
            format!("host=h user=me {password}"),
            format!("host=h user= password={password}"),
            format!("host= password={password} user=me"),
            format!("postgresql://h/app?password={password}"),
            format!("postgresql://h/app?user=me&password={password}&x=1"),
            format!("postgresql://h?password={password}"),
            format!("postgresql://h:1?user=me&password={password}&dbname=app"),
            format!("postgresql://?sslmode=disable&sslpassword={password}"),
        ] {
            let shown = match resolve(&string, &[]) {
                Ok(target) => format!("{} {:?}", target.describe(), target.hosts),
                Err(error) => format!("{error} {error:?}"),
            };
            // A first word before "=" is an option's name, and an unknown one is named.
            let is_option = separator == "=" && string.starts_with("host=h user=me");
            for piece in PIECES {
                assert!(is_option || !shown.contains(piece), "{string}\n{shown}");
            }
        }
    }
}
