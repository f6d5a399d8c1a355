import HapaxModel
import NIOCore
import NIOEmbedded
import Testing

@testable import HapaxServer

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

@Suite("Accepting without descriptors", .endsWhenItHangs)
struct AcceptPauseTests {
    private final class Reads: ChannelOutboundHandler {
        typealias OutboundIn = Never
        var count = 0

        func read(context: ChannelHandlerContext) {
            count += 1
            context.read()
        }
    }

    @Test(
        "Without a descriptor an idle connection goes, and accepting rests for a moment instead of spinning; other errors change nothing",
        arguments: [(EMFILE, true), (ENFILE, true), (ECONNABORTED, false)])
    func acceptingRests(code: Int32, rests: Bool) throws {
        let connections = Connections(limits: ServerLimits())
        let shed = Locked(0)
        let id = connections.opened(.init(shed: { shed.withLock { $0 += 1 } }, cut: {}), .now())
        connections.changed(id, .idle, .now())
        let (channel, reads) = (EmbeddedChannel(), Reads())
        try channel.pipeline.syncOperations.addHandlers([reads, AcceptPause(connections: connections)])
        channel.pipeline.fireErrorCaught(IOError(errnoCode: code, reason: "accept"))
        #expect(throws: IOError.self) { try channel.throwIfErrorCaught() }
        #expect(shed.withLock { $0 } == (rests ? 1 : 0))
        let before = reads.count
        channel.pipeline.read()
        #expect(reads.count - before == (rests ? 0 : 1))
        channel.embeddedEventLoop.advanceTime(by: TimeAmount(ServerLimits.acceptPause))
        #expect(reads.count - before == 1)
        _ = try? channel.finish()
    }
}
