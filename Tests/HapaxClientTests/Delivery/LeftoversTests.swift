import Foundation
import HapaxModel
import HapaxTestKit
import Logging
import TestSupport
import Testing

@testable import HapaxClient

@Suite("What other clients have left in a directory (I1, I7, I9, I12, I15)", .endsWhenItHangs)
struct LeftoversTests {
    private let directory = TemporaryDirectory()

    private func leave(_ names: Range<Int>, configure: (inout EventClient.Configuration) -> Void = { _ in }) async throws -> EventID {
        let test = try TestClient(directory: directory, configure: configure)
        try await test.track(names)
        let install = test.client.file.counters.installID
        await test.client.shutdown(within: .zero)
        return install
    }

    @Test("a client that runs for weeks takes along what one that ended left, with its timer, as that one's install and in its order")
    func orphansAreTaken() async throws {
        let first = try TestClient(directory: directory)
        let second = try TestClient(directory: directory) { $0.uploads.interval = .seconds(15) }
        try await first.track(0..<3)
        let install = first.client.file.counters.installID
        await first.client.shutdown(within: .zero)
        #expect(second.transport.batches.isEmpty)
        second.clock.advance(by: .seconds(15))
        await second.transport.requests(1)
        #expect(second.transport.batches[0].scanned.envelope.installID == install)
        #expect(
            second.transport.batches[0].names == ["event 0", "event 1", "event 2"] && second.transport.batches[0].sequences == [1, 2, 3])
        await second.client.shutdown(within: .zero)
    }

    @Test("the next owner of a file goes on as its install, with its next sequence (I7)")
    func fileGoesOn() async throws {
        let holder = try TestClient(directory: directory)
        let install = try await leave(0..<2)
        _ = await holder.client.leftovers.send(isManual: true)
        let next = try TestClient(directory: directory)
        try await next.track(2..<3)
        #expect(await next.client.flush().stored == 1)
        #expect(next.client.file.counters.installID == install && next.transport.batches[0].sequences == [3])
        for test in [next, holder] { await test.client.shutdown(within: .zero) }
    }

    @Test("a file with nothing to send is not opened; one with dead letters alone has nothing")
    func cleanFilesStayClosed() async throws {
        let holder = try TestClient(directory: directory)
        let other = try TestClient(directory: directory)
        other.transport.script { .success($0.receipt { _ in .rejected }) }
        try await other.track(0..<1)
        _ = await other.client.flush()
        #expect(FileClaim.note(of: 2, in: holder.client.file.directory)?.isClean == false)
        await other.client.shutdown(within: .zero)
        #expect(FileClaim.note(of: 2, in: holder.client.file.directory)?.isClean == true)
        // Nobody could open it.
        try FileManager.default.removeItem(atPath: directory.path("queue/2.sqlite"))
        try FileManager.default.createDirectory(atPath: directory.path("queue/2.sqlite"), withIntermediateDirectories: false)
        #expect(await holder.client.leftovers.send(isManual: true).failure == nil)
        await holder.client.shutdown(within: .zero)
    }

    @Test(
        "ten thousand files that nobody owns: what a hundred of them hold is sent, each once; with as many owned ones no other is begun (I13)"
    )
    func tenThousandLeftovers() async throws {
        let holder = try TestClient(directory: directory)
        let queue = holder.client.file.directory
        let event = try await leave(0..<1)
        func copy(_ number: Int, _ suffix: String) throws {
            try FileManager.default.copyItem(atPath: queue.path + "/2" + suffix, toPath: queue.path + "/\(number)" + suffix)
        }
        for number in 3...101 { for suffix in [".sqlite", ".lock"] { try copy(number, suffix) } }
        #expect(await holder.client.leftovers.send(isManual: true).counts.stored == 100)
        #expect(holder.transport.batches.allSatisfy { $0.scanned.envelope.installID == event })
        // As those that have been sent since say.
        #expect(FileClaim.note(of: 2, in: queue)?.isClean == true)
        for number in 102...10_000 { try copy(number, ".lock") }
        #expect(await holder.client.leftovers.send(isManual: true).counts.attempts == 0)
        try await holder.track(1..<2)
        #expect(await holder.client.flush().stored == 1)
        let free = try TestClient(directory: directory)
        #expect(free.client.file.number == 2)
        await free.client.shutdown(within: .zero)
        for number in 1...10_000 { try? FileManager.default.removeItem(atPath: queue.lockPath(number)) }
        try Files.write([0], to: queue.lockPath(1))
        for number in 2...10_000 { try FileManager.default.linkItem(atPath: queue.lockPath(1), toPath: queue.lockPath(number)) }
        #expect(throws: StartError.queueUnusable(.tooManyFiles)) { try TestClient(directory: directory) }
        await holder.client.shutdown(within: .zero)
    }

    @Test(
        "an event that the server refused alone is a dead letter where its process left it, once the server has accepted others (D13, I15)")
    func heldLeftoverGetsItsVerdict() async throws {
        let first = try TestClient(directory: directory)
        let second = try TestClient(directory: directory)
        second.transport.script { _ in .success(.problem(.malformed)) }
        try await second.track(0..<1)
        _ = await second.client.flush()
        await second.client.shutdown(within: .zero)
        first.transport.script { $0.names == ["event 0"] ? .success(.problem(.malformed)) : .success($0.receipt()) }
        #expect(await first.client.leftovers.send(isManual: true).counts.deadLettered == 0, "nothing has been accepted yet")
        try await first.track(1..<2)
        #expect(await first.client.flush().stored == 1)
        #expect(await first.client.leftovers.send(isManual: true).counts.deadLettered == 1)
    }

    @Test("files of another server or key are told and left alone, and sent once the configuration says that they are replaced (I9)")
    func othersFilesAreLeft() async throws {
        let log = RecordedLog()
        let install = try await leave(0..<2) { $0.writeKey = "former-key" }
        let test = try TestClient(directory: directory) { $0.logger = Logger(label: "test") { _ in log } }
        #expect(test.client.file.number == 2)
        let look = await test.client.leftovers.send(isManual: true)
        #expect(look.others == 1 && look.counts.attempts == 0 && test.transport.batches.flatMap(\.names).isEmpty)
        #expect(log.lines.count { $0.contains("another server or write key") } == 1)
        await test.client.shutdown(within: .zero)
        let next = try TestClient(directory: directory) {
            $0.replaces = [EventClient.Destination(server: EventClient.Configuration.url("http://127.0.0.1:1"), writeKey: "former-key")]
        }
        #expect(await next.client.leftovers.send(isManual: true).counts.stored == 2)
        #expect(next.transport.batches[0].scanned.envelope.installID == install)
        #expect(next.transport.batches[0].request.headers.contains { $0.value == "Bearer test-key" })
        await next.client.shutdown(within: .zero)
    }

    @Test("spellings of one URL are one destination, and a file that was begun under another one is found (C19, I9)")
    func spellingsAreOneDestination() async throws {
        let queue = QueueDirectory(path: directory.path("queue"))
        func endpoint(_ url: String) throws -> Endpoint {
            try EventClient.Configuration(server: url, writeKey: "test-key", queueDirectory: queue.path).endpoint()
        }
        for (one, other) in [
            ("https://Host.example/a", "HTTPS://host.example:443/a/"), ("http://h:80", "http://h"), ("http://h:", "http://h"),
            ("https://[::1]:443", "https://[::1]"), ("http://h:8080", "http://H:8080"),
        ] { #expect(try endpoint(one).destination == endpoint(other).destination, "\(one)") }
        for (one, other) in [("https://h:80", "https://h"), ("https://h/A", "https://h/a"), ("https://[::443]", "https://[::]")] {
            #expect(try endpoint(one).destination != endpoint(other).destination, "\(one)")
        }
        for (begun, server) in [("https://h:443", "https://h:443"), ("https://h:443", "https://h"), ("https://h", "https://h:443")] {
            // As an earlier version named it.
            let former = EventID.derived(name: begun + "/v1/events", key: "test-key")
            try QueueFile.first(of: former, in: queue, install: .derived(name: "install", key: "1"), durability: .process).close()
            let test = try TestClient(directory: directory) { $0.server = EventClient.Configuration.url(server) }
            #expect(test.client.file.number == 1, "\(begun) \(server)")
            await test.client.shutdown(within: .zero)
            try FileManager.default.removeItem(atPath: queue.path)
        }
    }

    @Test("what the server takes for a failure ends the look; what cannot be opened is told once, and in nobody's way")
    func oneFileHoldsUpNoOther() async throws {
        let log = RecordedLog()
        let holder = try TestClient(directory: directory) { $0.logger = Logger(label: "test") { _ in log } }
        let others = try (0..<3).map { _ in try TestClient(directory: directory) }
        for (index, other) in others.enumerated() { try await other.track(index..<index + 1) }
        for other in others { await other.client.shutdown(within: .zero) }
        try FileManager.default.removeItem(atPath: directory.path("queue/2.sqlite"))
        try FileManager.default.createDirectory(atPath: directory.path("queue/2.sqlite"), withIntermediateDirectories: false)
        holder.transport.script(ScriptedTransport.receipts(after: [.failure(.cut)]))
        let failed = await holder.client.leftovers.send(isManual: true)
        #expect(failed.failure == .transport(.cut) && holder.transport.batches.count == 1)
        let sent = await holder.client.leftovers.send(isManual: true)
        #expect(sent.failure == nil && sent.counts.stored == 2)
        #expect(holder.transport.batches.dropFirst().map(\.names) == [["event 1"], ["event 2"]])
        #expect(log.lines.count { $0.contains("cannot be used") } == 1)
        await holder.client.shutdown(within: .zero)
    }

    @Test("the end of a session whose process is gone is told by who finds its file, as that install's and of that user, once (R43)")
    func sessionsEndIsRecovered() async throws {
        let killed = TemporaryDirectory()
        let test = try TestClient(directory: killed) { $0.distinctID = nil }
        test.client.identify("anna")
        test.client.handle(.didBecomeActive)
        try await test.client.writer.barrier()
        try await test.client.writer.barrier()
        let install = test.client.file.counters.installID
        // As a kill leaves them.
        try FileManager.default.copyItem(atPath: killed.path("queue"), toPath: directory.path("queue"))
        await test.client.shutdown(within: .zero)
        let claim = try FileClaim(1, in: QueueDirectory(path: directory.path("queue")))
        let holder = try TestClient(directory: directory)
        holder.client.updateCommonProperties { $0 = ["secret": "of another process"] }
        claim.release()
        _ = await holder.client.leftovers.send(isManual: true)
        _ = await holder.client.leftovers.send(isManual: true)
        let batches = holder.transport.batches
        #expect(
            batches.flatMap(\.names) == ["$identify", "$AppStart", "$AppEnd"]
                && batches.allSatisfy { $0.scanned.envelope.installID == install })
        #expect(batches.flatMap(\.scanned.events).allSatisfy { $0.distinctID == Array("anna".utf8)[...] })
        #expect(batches.allSatisfy { !String(decoding: $0.body, as: UTF8.self).contains("secret") }, "C19")
        await holder.client.shutdown(within: .zero)
    }

    @Test("a backoff is the server's: who starts meanwhile sends nothing by itself, and a wish is heard (I16)")
    func backoffIsShared() async throws {
        let clock = TestClock()
        let first = try TestClient(directory: directory, clock: clock)
        first.transport.script { _ in .success(.problem(.overloaded, headers: ["retry-after": "100"])) }
        try await first.track(0..<1)
        _ = await first.client.flush()
        let second = try TestClient(directory: directory, clock: clock) {
            $0.uploads.interval = .seconds(15)
            $0.uploads.bulkSize = 1
        }
        try await second.track(1..<2)
        await second.client.delivery.uploadWanted()
        await second.client.delivery.restBegins()
        #expect(second.transport.batches.isEmpty)
        let other = try TestClient(directory: directory, clock: clock) {
            $0.server = EventClient.Configuration.url("http://127.0.0.1:2")
        }
        try await other.track(2..<3)
        #expect(await other.client.flush().stored == 1, "another server's backoff is none of its business")
        clock.advance(by: .seconds(110))
        await second.transport.requests(1)
        for test in [other, second, first] { await test.client.shutdown(within: .zero) }
    }

    @Test("a directory of an earlier version is refused in words and left as it is")
    func earlierVersionIsRefused() throws {
        let path = directory.path("queue")
        try Files.write(Array("of an earlier version".utf8), to: path + "/queue.sqlite")
        #expect(throws: StartError.queueUnusable(.earlierVersion)) { try TestClient(directory: directory) }
        #expect(try FileManager.default.contentsOfDirectory(atPath: path) == ["queue.sqlite"])
    }
}
