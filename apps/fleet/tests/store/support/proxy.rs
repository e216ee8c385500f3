//! A way to etcd that can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes connections on, unless it is cut.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// The connections that were begun.
    pub(crate) count: Arc<AtomicUsize>,
    is_cut: Arc<AtomicBool>,
    cuts: watch::Sender<()>,
}

impl Proxy {
    pub(crate) async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (cuts, _) = watch::channel(());
        let proxy = Self { port: own, count: Arc::default(), is_cut: Arc::default(), cuts };
        let (count, is_cut, cuts) = (proxy.count.clone(), proxy.is_cut.clone(), proxy.cuts.clone());
        tokio::spawn(async move {
            loop {
                let Ok((mut near, _)) = listener.accept().await else { return };
                count.fetch_add(1, Ordering::Relaxed);
                if is_cut.load(Ordering::Relaxed) {
                    continue;
                }
                let mut cut = cuts.subscribe();
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => (),
                        _ = cut.changed() => (),
                    }
                });
            }
        });
        proxy
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Ends all connections, and each that comes.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.cuts.send_replace(());
    }

    pub(crate) fn join(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
    }
}
