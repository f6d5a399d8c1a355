import Foundation
import TestSupport
import Testing

@Suite(.endsWhenItHangs)
struct LastWillTests {
    @Test func whatIsLeftIsDoneWhenTheProcessLetsGo() async throws {
        let directory = TemporaryDirectory("will")
        let fifo = directory.path("it's done")
        try #require(mkfifo(fifo, 0o600) == 0)
        var will: LastWill? = LastWill()
        let removed = try will?.add("echo removed > \(LastWill.quoted(directory.path("removed")))")
        _ = try will?.add("echo left > \(LastWill.quoted(fifo))")
        if let removed { will?.remove(removed) }
        will = nil
        let reading = try await blocking { try Descriptor.opened(fifo, O_RDONLY) }
        let read = try await blocking { try reading.read() }
        #expect(read == Array("left\n".utf8))
        #expect(!FileManager.default.fileExists(atPath: directory.path("removed")))
    }

    @Test func whatIsExecutedIsDoneAtOnceAndOnlyOnce() async throws {
        let directory = TemporaryDirectory("will")
        let fifo = directory.path("fifo")
        try #require(mkfifo(fifo, 0o600) == 0)
        var will: LastWill? = LastWill()
        if let entry = try will?.add("echo now >> \(LastWill.quoted(directory.path("log"))); echo done > \(LastWill.quoted(fifo))") {
            will?.execute(entry)
        }
        let reading = try await blocking { try Descriptor.opened(fifo, O_RDONLY) }
        let read2 = try await blocking { try reading.read() }
        #expect(read2 == Array("done\n".utf8))
        // Another one: a writer that finds the first still open for reading would be gone before this one is.
        let lastFifo = directory.path("last fifo")
        try #require(mkfifo(lastFifo, 0o600) == 0)
        _ = try will?.add("echo end > \(LastWill.quoted(lastFifo))")
        will = nil
        let last = try await blocking { try Descriptor.opened(lastFifo, O_RDONLY) }
        let read3 = try await blocking { try last.read() }
        #expect(read3 == Array("end\n".utf8))
        #expect(try String(contentsOfFile: directory.path("log"), encoding: .utf8) == "now\n")
    }
}
