//! Service files and password files.

use super::*;

#[test]
fn the_string_wins_over_the_service_over_the_environment_over_the_default() {
    let directory = tempfile::tempdir().unwrap();
    let services = write(
        directory.path(),
        "services",
        0o644,
        "# a comment\n\n[other]\nport=1\n[mine]\nport=6000\n  dbname=from service  \nhost=service-host\n[mine]\nport=7\n",
    );
    let environment = [
        ("PGSERVICEFILE", services.as_str()),
        ("PGHOST", "env-host"),
        ("PGPORT", "7000"),
        ("PGUSER", "env-user"),
        ("PGAPPNAME", "env-app"),
    ];
    let target = resolved("service=mine host=string-host", &environment);
    assert_eq!(target.hosts[0].place, tcp("string-host"));
    assert_eq!(target.hosts[0].port, 6000);
    assert_eq!(&*target.dbname, "from service");
    assert_eq!(&*target.user, "env-user");
    assert_eq!(target.application_name.as_deref(), Some("env-app"));
    assert_eq!(target.tls.mode, SslMode::Prefer);

    let by_variable = [environment.as_slice(), &[("PGSERVICE", "mine")]].concat();
    assert_eq!(resolved("", &by_variable).hosts[0].port, 6000);
    assert_eq!(resolved("service=other", &by_variable).hosts[0].port, 1);
}

#[test]
fn a_service_file_is_looked_for_at_home_and_then_in_the_system() {
    let home = tempfile::tempdir().unwrap();
    let system = tempfile::tempdir().unwrap();
    write(home.path(), ".pg_service.conf", 0o644, "[a]\nport=1\n");
    write(
        system.path(),
        "pg_service.conf",
        0o644,
        "[a]\nport=2\n[b]\nport=3\n",
    );
    let places = [
        ("HOME", home.path().to_str().unwrap()),
        ("PGSYSCONFDIR", system.path().to_str().unwrap()),
    ];
    assert_eq!(resolved("service=a", &places).hosts[0].port, 1);
    assert_eq!(resolved("service=b", &places).hosts[0].port, 3);
    let error = resolve("service=c", &places).unwrap_err().to_string();
    assert!(error.contains("\"c\""), "{error}");
}

#[test]
fn a_bad_service_file_is_named_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    for (content, line) in [
        ("[s]\nport\n", 2),
        ("[s]\nport=1\nprot=2\n", 3),
        ("[s]\nservice=t\n", 2),
        ("[s]\nldap://x\n", 2),
        (&format!("[s]\nhost={}\n", "x".repeat(2000)), 2),
    ] {
        let file = write(directory.path(), "services", 0o644, content);
        let error = resolve("service=s", &[("PGSERVICEFILE", &file)])
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("{file} line {line}")), "{error}");
    }
    let missing = directory.path().join("none");
    let error = resolve("service=s", &[("PGSERVICEFILE", missing.to_str().unwrap())]).unwrap_err();
    assert!(error.to_string().contains("none: No such file"), "{error}");
}

#[test]
fn every_host_has_its_own_entry_in_the_password_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(
        directory.path(),
        "pass",
        0o600,
        "#h1:5432:d:u:comment\r\n\
         h1:5432:d:u:first\n\
         h1:*:d:u:later\n\
         h2:5433:*:u:a\\:b\\\\c:rest\r\n\
         10.0.0.3:*:*:*:by address\n\
         localhost:5432:d:u:local\n\
         \\:\\:\\f:5432:d:u:odd\n\
         *:*:*:other:wildcard\n",
    );
    let target = resolved(
        &format!("postgresql://u@h1,h2:5433,h4/d?passfile={file}"),
        &[],
    );
    let found: Vec<_> = target.hosts.iter().map(password_of).collect();
    assert_eq!(found, [Some("first"), Some("a:b\\c"), None]);

    let of = |string: &str| {
        let target = resolved(&format!("{string} passfile={file}"), &[]);
        password_of(&target.hosts[0]).map(str::to_owned)
    };
    assert_eq!(
        of("hostaddr=10.0.0.3 user=x").as_deref(),
        Some("by address")
    );
    assert_eq!(
        of("host=h1 hostaddr=10.0.0.3 user=u dbname=d").as_deref(),
        Some("first")
    );
    assert_eq!(of("user=u dbname=d").as_deref(), Some("local"));
    assert_eq!(
        of("host=/var/run/postgresql user=u dbname=d").as_deref(),
        Some("local")
    );
    assert_eq!(of("host=/elsewhere user=u dbname=d"), None);
    assert_eq!(
        of("host=/elsewhere user=other").as_deref(),
        Some("wildcard")
    );
    assert_eq!(
        of("host=h1 user=u dbname=d password=''").as_deref(),
        Some("first")
    );
    assert_eq!(
        of("host=h1 user=u dbname=d password=given").as_deref(),
        Some("given")
    );
    assert_eq!(of("host=::f user=u dbname=d").as_deref(), Some("odd"));
}

#[test]
fn a_password_file_that_others_can_read_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    for (mode, expected) in [
        (0o600, Some("p")),
        (0o400, Some("p")),
        (0o640, None),
        (0o604, None),
    ] {
        let file = write(directory.path(), ".pgpass", mode, "*:*:*:*:p\n");
        for environment in [
            ("PGPASSFILE", file.as_str()),
            ("HOME", directory.path().to_str().unwrap()),
        ] {
            let target = resolved("host=h", &[environment]);
            assert_eq!(password_of(&target.hosts[0]), expected, "{mode:o}");
        }
    }
    let target = resolved(
        "host=h",
        &[("PGPASSFILE", directory.path().to_str().unwrap())],
    );
    assert_eq!(password_of(&target.hosts[0]), None);
}
