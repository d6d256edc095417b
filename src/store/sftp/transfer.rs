//! Reads and writes with several requests in flight.

use std::collections::VecDeque;

use super::failure::SftpFailure;
use super::files::RemoteFile;
use super::packet::{BadReply, Reply, Request, SftpRequestKind, StatusCode};
use super::session::{RequestInFlight, SftpSession, WaitKind};

/// Requests in flight, at most, for one read or write. With requests of 255 KiB that is 8 MiB, which fills a gigabit
/// over 60 ms.
const IN_FLIGHT_MAX: usize = 32;

/// Reads `len` bytes from `offset` on, or fewer if the file ends before.
pub(super) fn read(file: &RemoteFile, offset: u64, len: usize) -> Result<Vec<u8>, SftpFailure> {
    let session: &SftpSession = &file.session;
    let ask = |offset: u64, len: usize| -> Result<(u64, usize, RequestInFlight<'_>), SftpFailure> {
        let request = Request::new(SftpRequestKind::Read).text(&file.handle).u64(offset).u32(len as u32);
        Ok((offset, len, session.send(request)?))
    };
    let mut bytes = Vec::with_capacity(len);
    let mut in_flight = VecDeque::new();
    let mut asked = 0;
    while bytes.len() < len {
        while in_flight.len() < IN_FLIGHT_MAX && asked < len {
            let count = session.read_bytes.min(len - asked);
            in_flight.push_back(ask(offset + asked as u64, count)?);
            asked += count;
        }
        let Some((at, count, request)) = in_flight.pop_front() else { return Err(BadReply.into()) };
        match request.wait(WaitKind::Stoppable)? {
            Reply::Data(data) if !data.is_empty() && data.len() <= count => {
                session.pace_received(data.len())?;
                bytes.extend_from_slice(&data);
                if data.len() < count {
                    in_flight.push_front(ask(at + data.len() as u64, count - data.len())?);
                }
            }
            Reply::Status(StatusCode::EndOfFile, _) => break,
            reply => return Err(SftpFailure::of(reply)),
        }
    }
    Ok(bytes)
}

/// Writes `bytes` from `offset` on.
pub(super) fn write(file: &RemoteFile, offset: u64, bytes: &[u8]) -> Result<(), SftpFailure> {
    let session: &SftpSession = &file.session;
    let mut in_flight = VecDeque::new();
    let written = |request: RequestInFlight<'_>| match request.wait(WaitKind::ToTheEnd)? {
        Reply::Success => Ok(()),
        reply => Err(SftpFailure::of(reply)),
    };
    for (number, part) in bytes.chunks(session.write_bytes).enumerate() {
        if in_flight.len() >= IN_FLIGHT_MAX
            && let Some(request) = in_flight.pop_front()
        {
            written(request)?;
        }
        let at = offset + (number * session.write_bytes) as u64;
        let request =
            Request::with_capacity(SftpRequestKind::Write, part.len() + 64).text(&file.handle).u64(at).text(part);
        in_flight.push_back(session.send(request)?);
        session.pace_sent(part.len())?;
    }
    in_flight.into_iter().try_for_each(written)
}
