//! TCP ports that nobody else is given.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

/// A port of loopback that is kept from others while this lives, listened on or not.
///
/// A socket that is bound and does not listen keeps it: the kernel gives it to nobody who asks for
/// some port, and lets those bind it, too, who ask for it by number and with `SO_REUSEADDR`, as
/// servers do.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _reservation: Socket,
}

impl Port {
    pub(crate) fn new() -> Self {
        let reservation = bound(0);
        let address = reservation.local_addr().expect("the address of a port");
        let address = address.as_socket().expect("an address with a port");
        Self {
            number: address.port(),
            _reservation: reservation,
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Listens on it; one listener at a time.
    pub(crate) fn listen(&self) -> TcpListener {
        let socket = bound(self.number);
        socket.listen(128).expect("listen on a port of our own");
        socket.into()
    }
}

fn bound(port: u16) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("SO_REUSEADDR");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    socket.bind(&address.into()).expect("bind a port");
    socket
}
