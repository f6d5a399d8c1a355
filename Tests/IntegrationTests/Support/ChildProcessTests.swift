import Foundation
import TestSupport
import Testing

@Suite(.endsWhenItHangs)
struct ChildProcessTests {
    @Test func linesStatusAndErrorsAreRead() async throws {
        let child = try ChildProcess("/bin/sh", ["-c", "echo one; echo two $WORD; echo bad >&2; exit 3"], environment: ["WORD": "w"])
        #expect(await child.nextLine() == "one")
        #expect(try await child.line(after: "two ") == "w")
        #expect(await child.nextLine() == nil)
        #expect(await child.waitUntilExit() == .exited(3))
        #expect(!child.isRunning)
    }

    @Test func killIsSeenAsASignalAndACutLineIsNotDelivered() async throws {
        let child = try ChildProcess("/bin/sh", ["-c", "echo whole; printf part; exec cat /dev/zero"])
        #expect(await child.nextLine() == "whole")
        child.kill(SIGKILL)
        #expect(await child.remainingLines() == [])
        #expect(await child.waitUntilExit() == .signaled(SIGKILL))
        child.kill(SIGKILL)  // Harmless: the number is not ours any more.
    }

    @Test func droppingTheLastReferenceEndsTheProgram() async throws {
        let directory = TemporaryDirectory("fifo")
        let fifo = directory.path("fifo")
        try #require(mkfifo(fifo, 0o600) == 0)
        var child: ChildProcess? = try ChildProcess("/bin/sh", ["-c", #"exec 3>"$0"; echo started; exec tail -f /dev/null"#, fifo])
        let reading = try await blocking { try Descriptor.opened(fifo, O_RDONLY) }
        #expect(await child?.nextLine() == "started")
        child = nil
        // Only the child held the writing end: its end is read when the child is gone.
        let read = try await blocking { try reading.read() }
        #expect(read == [])
    }

    @Test func nextLineEndsWhenItsTaskIsCancelled() async throws {
        let child = try ChildProcess("/bin/cat", ["/dev/zero"])
        let reading = Task { await child.nextLine() }
        reading.cancel()
        #expect(await reading.value == nil)
    }
}
