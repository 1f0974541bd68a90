//! Test of a server with a private certificate: the client trusts it only if its settings say so.
//!
//! The certificates were made for these tests; the authority's key was thrown away.
//!
//! Not here: publicly trusted certificates, which only github.com has.

use std::pin::pin;
use std::sync::Arc;

use bullpen_core::ports::Fault;
use bullpen_github::{GitHub, Settings};
use futures_util::future::{Either, select};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::world::{World, app};

const AUTHORITY: &str = include_str!("../../fixtures/test-ca.pem");
const SERVER: &str = include_str!("../../fixtures/test-server.pem");
const SERVER_KEY: &str = include_str!("../../fixtures/test-server-key.pem");

fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(SERVER.as_bytes());
    let certificate = certificate.expect("the fixture is a certificate");
    let key = PrivateKeyDer::from_pem_slice(SERVER_KEY.as_bytes()).expect("the fixture is a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("the key is the certificate's");
    TlsAcceptor::from(Arc::new(config))
}

/// A TLS proxy in front of the stand-in, for one connection at a time.
async fn tls_proxy(listener: TcpListener, world: &World) {
    let acceptor = acceptor();
    loop {
        let (stream, _) = listener.accept().await.expect("loopback works");
        let Ok(mut stream) = acceptor.accept(stream).await else { continue };
        let upstream = TcpStream::connect(world.stand_in.address()).await;
        let mut upstream = upstream.expect("the stand-in is up");
        // Either side may close the connection at any time.
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut upstream).await;
    }
}

#[tokio::test]
async fn a_private_certificate_is_trusted_only_if_the_settings_say_so() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("https://{}", listener.local_addr().unwrap());
    let settings = Settings { base_url, ..world.settings("acme", app()) };
    let client = |extra_roots: Option<&str>| {
        let extra_roots = extra_roots.map(str::to_owned);
        let settings = Settings { extra_roots, ..settings.clone() };
        GitHub::new(&settings, Arc::clone(&world.clock)).unwrap()
    };
    let work = async {
        assert!(matches!(client(None).list().await, Err(Fault::Unavailable(_))));
        assert_eq!(world.stand_in.calls(), 0, "the client sent no credential");
        assert_eq!(client(Some(AUTHORITY)).list().await, Ok(vec![]));
    };
    let (work, proxy) = (pin!(work), pin!(tls_proxy(listener, &world)));
    assert!(matches!(select(work, proxy).await, Either::Left(_)));
}
