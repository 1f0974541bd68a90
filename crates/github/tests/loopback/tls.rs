//! A server of your own, with a certificate of your own: trusted if it was said so, else refused.
//!
//! The certificates were made for these tests; the authority's key was thrown away.
//!
//! Not here: certificates that everybody trusts, which only GitHub itself can show.

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
    let certificate = CertificateDer::from_pem_slice(SERVER.as_bytes()).expect("it is one");
    let key = PrivateKeyDer::from_pem_slice(SERVER_KEY.as_bytes()).expect("it is one");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    TlsAcceptor::from(Arc::new(config))
}

/// TLS in front of the stand-in, one connection at a time.
async fn front(listener: TcpListener, world: &World) {
    let acceptor = acceptor();
    loop {
        let (stream, _) = listener.accept().await.expect("loopback works");
        let Ok(mut stream) = acceptor.accept(stream).await else { continue };
        let behind = TcpStream::connect(world.stand_in.address()).await;
        let mut behind = behind.expect("the stand-in is up");
        // Either side may hang up as it likes.
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut behind).await;
    }
}

#[tokio::test]
async fn a_certificate_of_your_own_is_trusted_only_if_it_was_said_so() {
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
        assert_eq!(world.stand_in.calls(), 0, "no credential went there");
        assert_eq!(client(Some(AUTHORITY)).list().await, Ok(vec![]));
    };
    let (work, front) = (pin!(work), pin!(front(listener, &world)));
    assert!(matches!(select(work, front).await, Either::Left(_)));
}
