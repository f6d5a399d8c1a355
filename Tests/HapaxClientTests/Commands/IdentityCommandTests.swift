import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("hapax identity (R56, D16)", .endsWhenItHangs)
struct IdentityCommandTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    private func distinctIDs() -> [String] {
        server.batches.flatMap(\.scanned.events).map { String(decoding: $0.distinctID, as: UTF8.self) }
    }

    @Test("login, logout and reset hold for what is tracked afterwards, reset as client.reset() does; the call's own id wins (R56, C21)")
    func identityHolds() async throws {
        #expect(try await hapax.run("identity", "show", "--json").json["distinct_id"] is NSNull)
        let anonymous = try #require(try await hapax.run("identity", "logout", "--json").json["anonymous_id"] as? String)
        _ = try await hapax.run("track", "anonymous")
        #expect(try await hapax.run("identity", "login", "anna", "--json").json["distinct_id"] as? String == "anna")
        _ = try await hapax.run("track", "logged in")
        _ = try await hapax.run("track", "for another", "--distinct-id", "bea")
        let reset = try await hapax.run("identity", "reset", "--json").json
        let another = try #require(reset["anonymous_id"] as? String)
        #expect(another != anonymous && reset["login_id"] is NSNull && reset["distinct_id"] as? String == another)
        _ = try await hapax.run("track", "another person")
        #expect(distinctIDs() == [anonymous, "anna", "bea", another])
        #expect(try await hapax.run("identity", "login", "").status == 64)
        #expect(try await hapax.run("identity", "login", String(repeating: "i", count: 201)).status == 64)
        #expect(try await hapax.run("identity", "show", "--json").json["login_id"] is NSNull)
    }

    @Test("a file in the directory's place is no queue without an identity: 1")
    func fileIsNoDirectory() async throws {
        try Data().write(to: URL(fileURLWithPath: hapax.queue))
        let output = try await hapax.run("identity", "show")
        #expect(output.status == 1 && output.out.isEmpty && output.error.contains("cannot be used"))
    }

    @Test("opting out refuses events with 1 and says why, and what waits is delivered (D16); opting in takes them again")
    func optOutRefuses() async throws {
        _ = try await hapax.run("track", "before", "--no-flush")
        #expect(try await hapax.run("identity", "opt-out", "--json").json["opted_out"] as? Bool == true)
        let refused = try await hapax.run("track", "after")
        #expect(refused.status == 1 && refused.error.contains("opted out") && refused.out.isEmpty)
        #expect(try await hapax.run("flush", "--json").json["stored"] as? Int == 1)
        let status = try await hapax.run("status", "--json")
        #expect(status.json["dropped"] as? [String: Int] == ["opted_out": 1] && status.json["opted_out"] as? Bool == true)
        #expect(try await hapax.run("identity", "opt-in").status == 0)
        #expect(try await hapax.run("status", "--json").json["opted_out"] as? Bool == false)
        #expect(try await hapax.run("track", "again").status == 0)
        #expect(server.batches.flatMap(\.names) == ["before", "again"])
    }

    @Test(
        "while consent is pending what would send ends with 2 and says why, track with 0 since it has stored its event; opting out deletes what it stored, opting in sends it; an import stores nothing (C20)"
    )
    func pendingSendsNothing() async throws {
        let file = hapax.directory.path("events.ndjson")
        let line = #"{"event_id":"01900000-0000-7000-8000-000000000001","event":"imported","time":1,"distinct_id":"a","properties":{}}"#
        try Data((line + "\n").utf8).write(to: URL(filePath: file))
        for (decision, sent) in [("opt-out", 0), ("opt-in", 2)] {
            #expect(try await hapax.run("identity", "pending", "--json").json["consent"] as? String == "pending")
            #expect(try await hapax.run("track", "stored", "--no-flush").status == 0)
            for command in [["track", "waits"], ["import", file], ["flush"]] {
                let output = try await hapax.start(command).finish()
                #expect(
                    output.status == (command[0] == "track" ? 0 : 2) && output.error.contains("consent is pending"), "\(command): \(output)"
                )
            }
            let status = try await hapax.run("status", "--json").json
            #expect(status["waiting"] as? Int == 2 && status["consent"] as? String == "pending", "of the file nothing waits")
            #expect(try await hapax.run("status").out.contains("not sent before the user's consent"))
            #expect(try await hapax.run("identity", decision).status == 0)
            #expect(try await hapax.run("flush", "--json").json["remaining"] as? Int == 0)
            #expect(server.batches.flatMap(\.names).count == sent, "\(decision)")
        }
    }

    @Test("a file's events are none of the user's who denies: a denial neither stops an import nor deletes what it has stored (C20)")
    func denialIsNotAboutFiles() async throws {
        func line(_ number: Int) -> String {
            #"{"event_id":"\#(EventID.derived(name: "line", key: "\(number)"))","event":"e","time":\#(number),"distinct_id":"u"}"# + "\n"
        }
        let pipe = Pipe()
        let writing = pipe.fileHandleForWriting
        let (_, finish) = try hapax.start(["import", "-", "--json"], openInput: pipe)
        try writing.write(contentsOf: Data(line(0).utf8))
        await server.requests(1)
        #expect(try await hapax.run("identity", "opt-out").status == 0)
        try writing.write(contentsOf: Data(line(1).utf8))
        await server.requests(2)
        #expect(try await hapax.run("identity", "pending").status == 0)
        try writing.write(contentsOf: Data(line(2).utf8))
        let ended = await finish()
        #expect(ended.status == 2 && ended.json["stored"] as? Int == 2 && ended.json["waiting"] as? Int == 0, "\(ended)")
        #expect(ended.error.contains("hapax identity opt-in or opt-out") || ended.json["failure"] is String)
        try writing.close()
        // Denied again: what waits of a file stays, and all of it arrives.
        #expect(try await hapax.run("identity", "opt-out").status == 0)
        server.change { $0.failuresLeft = 1 }
        let path = hapax.directory.path("events.ndjson")
        try Data((0..<3).map(line).joined().utf8).write(to: URL(filePath: path))
        let whole = try await hapax.run("import", path, "--json")
        #expect(whole.status == 0 && whole.json["stored"] as? Int == 1 && whole.json["duplicates"] as? Int == 2, "\(whole)")
        #expect(server.stored.count == 3)
    }

    @Test("while a client works in the directory it is changed as well: that one learns of it at its next start, of an opt-out at once")
    func identityIsTheDirectorys() async throws {
        let client = try hapax.client()
        #expect(try await hapax.run("identity", "login", "anna").status == 0)
        #expect(client.client.identity.loginID == nil)
        #expect(try await hapax.run("identity", "opt-out").status == 0)
        try await client.client.writer.barrier()
        client.client.track("its commit looks for the mark")
        try await client.client.writer.barrier()
        #expect(client.client.track("refused") == nil)
        await client.client.shutdown(within: .zero)
        let next = try hapax.client()
        #expect(next.client.identity.loginID == "anna" && next.client.consent == .denied)
        await next.client.shutdown(within: .zero)
    }
}
