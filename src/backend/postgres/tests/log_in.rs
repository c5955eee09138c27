//! Tests of the log-in: passwords, unreachable servers and TLS.

use super::*;

#[test]
fn wrong_password_is_refused_and_never_shown() {
    let server = Server::start(&[]);
    server.sql("CREATE ROLE ada LOGIN SUPERUSER PASSWORD 'geheim'");
    server.write("pg_hba.conf", "local all postgres trust\nlocal all all scram-sha-256\n");
    server.reload();
    let e = refusal(&server.url_as("ada", "s"));
    assert!(e.kind() == ErrorKind::AuthFailed && e.to_string().contains("PGPASSWORD"), "{e}");
    let e = refusal(&server.url_as("ada:falsch", "s"));
    assert!(e.kind() == ErrorKind::AuthFailed && !e.to_string().contains("falsch"), "{e}");
    open(&server.url_as("ada:geheim", "s"));

    let file = server.folder().with_extension("pgpass");
    fs::write(&file, "*:*:postgres:ada:geheim\n").unwrap();
    let url = format!("{}&passfile={}", server.url_as("ada", "s"), file.display());
    for (mode, works) in [(0o600, true), (0o644, false)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        match try_open(&url) {
            Ok(_) => assert!(works, "{mode:o}"),
            Err(e) => {
                let advice =
                    format!("the file {} was ignored, because other users may read it", file.display());
                assert!(!works && e.to_string().contains(&advice), "{mode:o}: {e}");
            }
        }
    }
    fs::remove_file(file).unwrap();
}

/// Runs openssl in a folder.
fn openssl(folder: &Path, args: &str) {
    let out =
        std::process::Command::new("openssl").args(args.split(' ')).current_dir(folder).output().unwrap();
    assert!(out.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Installs a certificate for the name `localhost` on a server. Returns the temporary folder of the
/// certificates, and the paths of its root certificate and of another one.
fn certify(server: &Server) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for root in ["root", "other"] {
        openssl(
            at,
            &format!(
                "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={root} -keyout {root}.key -out {root}.crt"
            ),
        );
    }
    openssl(at, "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr");
    fs::write(at.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    openssl(
        at,
        "x509 -req -in server.csr -CA root.crt -CAkey root.key -CAcreateserial -days 2 -extfile names -out server.crt",
    );
    for name in ["server.key", "server.crt"] {
        server.write(name, &fs::read_to_string(at.join(name)).unwrap());
    }
    let (root, other) = (at.join("root.crt"), at.join("other.crt"));
    (folder, root, other)
}

/// Returns a port on which no program listened a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn unreachable_server_error_says_what_to_check() {
    for url in [
        format!("postgresql://u@127.0.0.1:{}/d", free_port()),
        "postgresql://u@/d?host=/not/there".to_owned(),
    ] {
        let impatient = Config::new().busy_timeout(std::time::Duration::ZERO);
        let e = Db::open(&url, &impatient, Arc::default()).map(drop).unwrap_err();
        let text = e.to_string();
        assert!(
            e.kind() == ErrorKind::CantOpen && text.contains("check that the server is running"),
            "{text}"
        );
        assert!(text.contains("port of the URL"), "{text}");
    }
}

#[test]
fn tls_follows_sslmode() {
    let port = free_port();
    let options = ["listen_addresses=localhost".to_owned(), format!("port={port}")];
    let server = Server::start(&[&options[0], &options[1]]);
    let url = |host: &str, rest: &str| format!("postgresql://postgres@{host}:{port}/postgres?{rest}");
    // The server does not support TLS yet.
    for (rest, works) in
        [("sslmode=disable", true), ("sslmode=prefer", true), ("", true), ("sslmode=require", false)]
    {
        let opened = try_open(&url("localhost", rest));
        assert_eq!(
            opened.as_ref().map(|_| ()).map_err(Error::kind).err(),
            (!works).then_some(ErrorKind::CantOpen)
        );
    }
    let (_folder, root, other) = certify(&server);
    server.write("postgresql.auto.conf", "ssl = on\n");
    server.stop("fast");
    server.start_again();
    let (root, other) = (root.display(), other.display());
    for (host, rest, encrypted) in [
        ("localhost", "sslmode=disable".to_owned(), Some(false)),
        ("localhost", "sslmode=prefer".to_owned(), Some(true)),
        ("localhost", "sslmode=require".to_owned(), Some(true)),
        ("localhost", "sslmode=verify-full".to_owned(), None),
        ("localhost", "sslmode=verify-ca".to_owned(), None),
        ("localhost", format!("sslmode=verify-full&sslrootcert={root}"), Some(true)),
        ("localhost", format!("sslmode=verify-full&sslrootcert={other}"), None),
        ("localhost", "sslmode=verify-full&sslrootcert=/not/there".to_owned(), None),
        // The certificate contains no address.
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={root}"), None),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={root}"), Some(true)),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={other}"), None),
        // With a root certificate, `require` is the same as `verify-ca`.
        ("127.0.0.1", format!("sslmode=require&sslrootcert={root}"), Some(true)),
        ("127.0.0.1", format!("sslmode=require&sslrootcert={other}"), None),
        ("localhost", "sslrootcert=system".to_owned(), None),
    ] {
        let found = try_open(&url(host, &rest)).map(|db| {
            let rows = db.query(Again::Yes, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[]);
            rows.unwrap()[0].get::<_, bool>(0)
        });
        match (found, encrypted) {
            (Ok(found), Some(expected)) => assert_eq!(found, expected, "{host} {rest}"),
            (Err(e), None) => {
                assert_eq!(e.kind(), ErrorKind::CantOpen, "{host} {rest}: {e}");
                // The error names the reason.
                assert!(e.to_string().contains("ertificate"), "{host} {rest}: {e}");
            }
            (Ok(_), None) => panic!("{host} {rest}: was opened"),
            (Err(e), Some(_)) => panic!("{host} {rest}: {e}"),
        }
    }
    // Large values also pass through TLS.
    let db = open(&url("localhost", &format!("sslmode=verify-full&sslrootcert={root}")));
    let large = vec![7_u8; 20 << 20];
    let back = db.query(Again::Yes, "SELECT $1::bytea", &[&large]).unwrap();
    assert!(back[0].get::<_, &[u8]>(0) == large);
}
