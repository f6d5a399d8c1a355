import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import Logging
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Identity, properties, enrichers and opt-out (R56–R58, D16)", .endsWhenItHangs)
struct IdentityTests {
    private func distinctIDs(_ test: TestClient) async -> [String] {
        _ = await test.client.flush()
        return test.transport.batches.flatMap(\.scanned.events).map { String(decoding: $0.distinctID, as: UTF8.self) }
    }

    private func properties(_ test: TestClient) async throws -> [String] {
        _ = await test.client.flush()
        return test.transport.batches.flatMap(\.scanned.events).map { String(decoding: $0.properties, as: UTF8.self) }
    }

    @Test("of changes by two processes at once none is lost (C19, R56)")
    func changesFollowEachOther() async throws {
        let directory = TemporaryDirectory()
        let file = IdentityFile(QueueDirectory(path: directory.path))
        let isDone = DispatchSemaphore(value: 0)
        _ = try file.change { identity in
            Thread.detachNewThread {
                _ = try? file.change { $0.anonymousID = "other" }
                for _ in 0..<2 { isDone.signal() }
            }
            // Time for it to be overwritten; without it the test would only see less.
            _ = isDone.wait(timeout: .now() + .milliseconds(100))
            identity.loginID = "anna"
        }
        try await blocking { isDone.wait() }
        #expect(try file.read() == KeptIdentity(anonymousID: "other", loginID: "anna"))
    }

    @Test("the login id, else the configuration's, else the anonymous id; the call's own wins (R56)")
    func loginWins() async throws {
        let test = try TestClient { $0.distinctID = nil }
        test.client.track("anonymous")
        test.client.identify("anna")
        test.client.track("logged in")
        test.client.track("for another", distinctID: "bea")
        test.client.identify(nil)
        test.client.track("logged out")
        let anonymous = test.client.identity.anonymousID
        #expect(await distinctIDs(test) == [anonymous, "anna", "anna", "bea", anonymous], "the second is $identify")
        let service = try TestClient { $0.distinctID = "service" }
        #expect(service.client.identity.distinctID == "service")
        service.client.identify("anna")
        #expect(service.client.identity.distinctID == "anna")
    }

    @Test("login id, anonymous id and opt-out are known to the next client on the queue (R56)")
    func identityIsPersisted() async throws {
        let directory = TemporaryDirectory()
        let first = try TestClient(directory: directory) { $0.distinctID = nil }
        let before = first.client.identity.anonymousID
        first.client.reset()
        let anonymous = first.client.identity.anonymousID
        #expect(anonymous != before)
        first.client.identify("anna")
        try first.client.setConsent(.denied)
        _ = await first.client.shutdown(within: .zero)
        let second = try TestClient(directory: directory) { $0.distinctID = nil }
        #expect(
            second.client.identity.loginID == "anna" && second.client.identity.anonymousID == anonymous && second.client.consent == .denied)
        second.client.identify(nil)
        try second.client.setConsent(.granted)
        _ = await second.client.shutdown(within: .zero)
        let third = try TestClient(directory: directory) { $0.distinctID = nil }
        #expect(third.client.identity.distinctID == anonymous && third.client.consent != .denied)
    }

    @Test("another client in the directory knows the login at its start, and an opt-out with its next commit (R56, D16)")
    func identityIsTheDirectorys() async throws {
        let first = try TestClient()
        first.client.identify("anna")
        try await first.client.waitUntilStored()
        let second = try TestClient(directory: first.directory) { $0.distinctID = nil }
        #expect(
            second.client.identity.distinctID == "anna" && second.client.identity.anonymousID == first.client.identity.anonymousID
                && second.client.consent != .denied)
        second.client.identify(nil)
        try await second.client.waitUntilStored()
        #expect(first.client.identity.loginID == "anna", "who runs learns of it at its next start")
        try first.client.setConsent(.denied)
        try await second.client.writer.barrier()
        second.client.track("counts as taken: nobody has looked yet")
        try await second.client.writer.barrier()
        #expect(second.client.track("event") == nil)
        let third = try TestClient(directory: first.directory)
        #expect(third.client.identity.loginID == nil && third.client.track("event") == nil)
        for test in [third, second, first] { _ = await test.client.shutdown(within: .zero) }
    }

    @Test("an identity that cannot be understood is set aside and told; events concern a new anonymous id then (R56)")
    func damagedIdentityIsReplaced() async throws {
        let log = RecordedLog()
        let first = try TestClient()
        await first.client.shutdown(within: .zero)
        let path = first.directory.path("queue/identity.json")
        try Data("noise".utf8).write(to: URL(fileURLWithPath: path))
        let second = try TestClient(directory: first.directory) { $0.logger = Logger(label: "test") { _ in log } }
        #expect(
            second.client.identity.anonymousID != first.client.identity.anonymousID
                && FileManager.default.fileExists(atPath: path + ".damaged"))
        #expect(log.lines.contains { $0.contains("Whom events concern cannot be read") })
        await second.client.shutdown(within: .zero)
    }

    @Test("refusals are counted on disk though no event is stored after them, in one commit a second (D16, I12)")
    func refusalsAreCountedWithoutEvents() async throws {
        let test = try TestClient()
        try test.client.setConsent(.denied)
        for _ in 0..<3 { test.client.track("refused") }
        try #require(test.clock.pending == [.seconds(1)])
        #expect(test.client.file.counters.dropped == [:])
        let commits = CommitWatch()
        try test.client.file.database.add(transactionObserver: commits)
        test.clock.advance(by: .seconds(1))
        for await _ in commits.stream { break }
        // Behind the commit: its connection does one thing at a time.
        try await test.client.file.database.writeWithoutTransaction { _ in }
        #expect(test.client.file.counters.dropped == ["opted_out": 3])
        test.client.track("refused")
        #expect(test.clock.pending == [.seconds(1)], "and again")
        #expect(await test.client.status().dropped == ["opted_out": 4])
    }

    @Test(
        "an id of 200 bytes is one; none, 201 and U+0000 are ignored and counted",
        arguments: ["", "i", String(repeating: "i", count: 200), String(repeating: "i", count: 201), "\0"])
    func idIsLimited(id: String) async throws {
        let test = try TestClient()
        test.client.identify(id)
        let isValid = (1...200).contains(id.utf8.count) && id != "\0"
        #expect(test.client.identity.loginID == (isValid ? id : nil))
        #expect(await test.client.status().dropped == (isValid ? [:] : ["invalid_id": 1]))
    }

    @Test("a login is on disk before any event that is tracked after it; where it cannot be written, that event's commit fails (R56)")
    func identityPrecedesItsEvents() async throws {
        let test = try TestClient()
        test.client.identify("anna")
        try await test.client.trackDurably("event")
        #expect(try IdentityFile(test.client.file.directory).read()?.loginID == "anna")
        // As on a device that was pulled out.
        try FileManager.default.removeItem(atPath: test.directory.path + "/queue")
        test.client.identify("bea")
        #expect(test.client.identity.distinctID == "bea")
        test.client.track("event")
        // The attempt behind the first, which has failed.
        await test.clock.scheduled(1)
        await #expect(throws: TrackError.self) { try await test.client.writer.barrier(retrying: true) }
        #expect(throws: ConsentError.self) { try test.client.setConsent(.denied) }
        #expect(test.client.track("after") == nil)
    }

    @Test(
        "a login makes one event of all runs, which names the anonymous id, and so do later events; reset makes another person (R12, R56)")
    func loginIsOneEvent() async throws {
        let first = try TestClient { $0.distinctID = nil }
        let anonymous = first.client.identity.anonymousID
        first.client.updateCommonProperties { $0 = ["plan": "pro"] }
        for _ in 0..<2 { first.client.identify("anna") }
        first.client.track("event")
        #expect(try await properties(first).allSatisfy { $0.contains(#""$anonymous_id":"\#(anonymous)""#) })
        let identified = first.transport.batches.flatMap(\.scanned.events).filter { $0.name == Array("$identify".utf8)[...] }
        #expect(identified.count == 1)
        first.client.reset()
        #expect(
            first.client.identity.distinctID != anonymous && first.client.identity.loginID == nil && first.client.commonProperties == [:])
        first.client.identify("anna")
        first.client.track("event")
        _ = await first.client.flush()
        await first.client.shutdown(within: .zero)
        let second = try TestClient(directory: first.directory) { $0.distinctID = nil }
        second.client.identify("anna")
        _ = await second.client.flush()
        let ids = second.transport.batches.flatMap(\.scanned.events).map(\.id)
        let before = first.transport.batches.flatMap(\.scanned.events).filter { $0.name == Array("$identify".utf8)[...] }.map(\.id)
        #expect(before.count == 2 && ids.isEmpty, "the directory knows whose it has stored (C5)")
        await second.client.shutdown(within: .zero)
    }

    @Test(
        "C5: what `$identify` said while consent was pending goes with a denial, from the disk as well; who agrees then is identified anew (D16)"
    )
    func deniedIdentifyIsForgotten() async throws {
        let test = try TestClient { ($0.distinctID, $0.consent) = (nil, .pending) }
        let path = test.directory.path("queue/identity.json")
        func kept() throws -> [Identified] { try IdentityFile(QueueDirectory(path: test.directory.path("queue"))).read()?.identified ?? [] }
        test.client.identify("anna")
        try await test.client.waitUntilStored()
        #expect(try kept().map { $0.event == nil } == [false] && !kept()[0].pair.contains("anna"))
        try test.client.setConsent(.denied)
        #expect(try kept().isEmpty && !String(contentsOfFile: path, encoding: .utf8).contains("$identify"))
        try test.client.setConsent(.granted)
        test.client.identify("anna")
        _ = await test.client.flush()
        #expect(test.transport.batches.flatMap(\.names) == ["$identify"])
        #expect(try kept().map { $0.event == nil } == [true])
        await test.client.shutdown(within: .zero)
    }

    @Test("C5: a hundred users are known to the directory; their `$identify` is stored once, however often they log in again (R56)")
    func hundredUsersAreKnown() async throws {
        let test = try TestClient { $0.distinctID = nil }
        for _ in 0..<2 { for user in 0..<100 { test.client.identify("user \(user)") } }
        _ = await test.client.flush()
        #expect(test.transport.batches.flatMap(\.names).count == 100)
        await test.client.shutdown(within: .zero)
    }

    @Test("a queue's directory that is away for a moment takes no opt-out with it (D16)")
    func movedDirectoryOptsNobodyIn() async throws {
        let test = try TestClient()
        try test.client.setConsent(.denied)
        let place = test.directory.path("queue")
        try FileManager.default.moveItem(atPath: place, toPath: place + ".moved")
        #expect(test.client.track("refused") == nil)
        // The commit that counts it looks for the mark.
        try? await test.client.writer.barrier()
        #expect(test.client.consent == .denied && test.client.track("refused, too") == nil)
        #expect(throws: ConsentError.self) { try test.client.setConsent(.granted) }
        #expect(test.client.consent == .denied && test.client.track("refused as well") == nil)
        try FileManager.default.moveItem(atPath: place + ".moved", toPath: place)
        try await test.client.writer.barrier(retrying: true)
        await test.client.shutdown(within: .zero)
    }

    @Test("an opt-in that cannot be written is told, and none: events are refused as before (D16)")
    func unwrittenOptInIsNone() async throws {
        let test = try TestClient()
        try test.client.setConsent(.denied)
        let mark = test.client.file.directory.consentPath
        try FileManager.default.removeItem(atPath: mark)
        try FileManager.default.createDirectory(atPath: mark + "/something", withIntermediateDirectories: true)
        #expect(throws: ConsentError.self) { try test.client.setConsent(.granted) }
        #expect(test.client.consent == .denied && test.client.track("refused") == nil)
        try FileManager.default.removeItem(atPath: mark)
        try test.client.setConsent(.granted)
        #expect(test.client.track("taken") != nil)
        await test.client.shutdown(within: .zero)
    }

    @Test("automatic < common < what an enricher adds < own (R57); no $app_state unless passive (R48)", arguments: [false, true])
    func ownPropertiesWin(isEnriched: Bool) async throws {
        let test = try TestClient {
            if isEnriched { $0.enrichers = [{ $0 }] }
            $0.automatic.properties = true
            $0.automatic.appVersion = "7.1"
            $0.enrichers.append(adding(["$os": "computed", "super": "computed", "own": "computed"]))
        }
        test.client.updateCommonProperties { $0 = ["$lib": "super", "$os": "super", "super": "super", "own": "super"] }
        test.client.track("event", properties: ["own": "own"])
        _ = await test.client.flush()
        let text = try #require(try await properties(test).first)
        for pair in [
            #""$app_version":"7.1""#, #""$lib":"super""#, #""$os":"computed""#, #""super":"computed""#, #""own":"own""#,
            #""$lib_version":"\#(AutomaticProperties.libraryVersion)""#, #""$os_version":"#,
        ] { #expect(text.contains(pair)) }
        #expect(!text.contains("$app_state"))
    }

    #if os(Linux)
    @Test("automatic properties name the machine, the system, the app and the library; what is not known is left out (R57)")
    func automaticPropertiesAreCollected() throws {
        let firmware = TemporaryDirectory()
        try Data("Board 9\n".utf8).write(to: URL(fileURLWithPath: firmware.path + "/product_name"))
        try Data(" Maker & Sons \n".utf8).write(to: URL(fileURLWithPath: firmware.path + "/sys_vendor"))
        let system = PropertyValue.string(ProcessInfo.processInfo.operatingSystemVersionString)
        let known: Properties = [
            "$lib": "hapax-swift", "$lib_version": AutomaticProperties.libraryVersion, "$os": "Linux", "$os_version": system,
        ]
        let more: Properties = ["$app_version": "7.1", "$model": "Board 9", "$manufacturer": "Maker & Sons"]
        #expect(AutomaticProperties.collect(appVersion: "7.1", firmware: firmware.path) == known.merging(more))
        let none = firmware.path + "/none"
        #expect(AutomaticProperties.collect(appVersion: nil, firmware: none) == known)
        let bundle = ["CFBundleShortVersionString": "7.0"]
        for (given, version) in [(nil, "7.0"), ("7.1", "7.1")] as [(String?, PropertyValue)] {
            let collected = AutomaticProperties.collect(appVersion: given, bundle: bundle, firmware: none)
            #expect(collected == known.merging(["$app_version": version]))
        }
    }
    #endif

    @Test("automatic properties can be left out; super properties hold from their call on (R57)")
    func superPropertiesAreOrdered() async throws {
        let test = try TestClient()
        test.client.track("before")
        test.client.updateCommonProperties { $0.merge(["a": 1]) }
        test.client.track("between")
        test.client.updateCommonProperties { $0.merge(["a": 2, "b": 1]) }
        test.client.track("after")
        #expect(try await properties(test) == ["{}", #"{"a":1}"#, #"{"a":2,"b":1}"#])
    }

    @Test("an enricher changes events with all their properties in sight, or drops them: counted, and without a sequence (I12)")
    func enrichersChangeAndDrop() async throws {
        let test = try TestClient {
            $0.enrichers = [
                { $0.name == "secret" ? nil : $0 },
                { draft in
                    var draft = draft
                    draft.properties["seen"] = Int64(draft.properties.count)
                    draft.name += "?"
                    draft.distinctID += "!"
                    return draft
                },
            ]
        }
        test.client.updateCommonProperties { $0 = ["super": true] }
        test.client.track("one", properties: ["own": true])
        #expect(test.client.track("secret") == nil)
        await #expect(throws: TrackError.refused(.enricher)) { try await test.client.trackDurably("secret") }
        test.client.track("two", distinctID: "other")
        #expect(try await properties(test) == [#"{"own":true,"seen":2,"super":true}"#, #"{"seen":1,"super":true}"#])
        #expect(test.transport.batches.flatMap(\.sequences) == [1, 2] && test.transport.batches.flatMap(\.names) == ["one?", "two?"])
        #expect(await distinctIDs(test) == ["somebody!", "other!"])
        #expect(await test.client.status().dropped == ["enricher": 2])
    }

    @Test("an event that is not taken is shown to no code of the user's, and counted as what it was refused for (I12, D16)")
    func refusedEventIsNotShown() async throws {
        let asked = Locked(0)
        let test = try TestClient {
            $0.enrichers = [
                { _ in
                    asked.withLock { $0 += 1 }
                    return nil
                }
            ]
        }
        try test.client.setConsent(.denied)
        #expect(test.client.track("opted out") == nil)
        await #expect(throws: TrackError.refused(.optedOut)) { try await test.client.trackDurably("opted out") }
        _ = await test.client.shutdown(within: .zero)
        #expect(test.client.track("shut down") == nil)
        await #expect(throws: TrackError.refused(.shutDown)) { try await test.client.trackDurably("shut down") }
        #expect(asked.withLock { $0 } == 0)
        #expect(await test.client.status().dropped == ["opted_out": 2, "shut_down": 2])
    }

    @Test("an enricher can take away what every event is laid over (R57)")
    func enricherTakesAway() async throws {
        let test = try TestClient {
            $0.enrichers = [
                { draft in
                    var draft = draft
                    draft.properties["super"] = nil
                    return draft
                }
            ]
        }
        test.client.updateCommonProperties { $0 = ["other": 1, "super": true] }
        test.client.track("event")
        #expect(try await properties(test) == [#"{"other":1}"#])
    }

    @Test("an event that was being enriched while its user opted out is refused; while they logged in, enriched again (D16)")
    func enrichingIsLinear() async throws {
        let client = Locked<EventClient?>(nil)
        let seen = Locked<[String]>([])
        let test = try TestClient {
            $0.enrichers = [
                { draft in
                    let isFirst = seen.withLock { seen in
                        seen.append(draft.distinctID)
                        return seen.count == 1
                    }
                    if draft.name == "opting out" { try? client.withLock { $0 }?.setConsent(.denied) }
                    if isFirst { client.withLock { $0 }?.identify("anna") }
                    return draft
                }
            ]
        }
        client.withLock { $0 = test.client }
        test.client.track("logging in")
        #expect(seen.withLock { $0 } == ["somebody", "anna", "anna"], "the second is $identify")
        #expect(test.client.track("opting out") == nil)
        #expect(await distinctIDs(test) == ["anna", "anna"])
        client.withLock { $0 = nil }
    }

    @Test("an enricher that changes what events are laid over each time it runs comes to an end (I13)")
    func restlessEnricherEnds() async throws {
        let client = Locked<EventClient?>(nil)
        let runs = Locked(0)
        let test = try TestClient {
            $0.enrichers = [
                { draft in
                    let run = runs.withLock { runs in
                        runs += 1
                        return runs
                    }
                    client.withLock { $0 }?.updateCommonProperties { $0.merge(["run": run]) }
                    return draft
                }
            ]
        }
        client.withLock { $0 = test.client }
        #expect(test.client.track("event") != nil)
        #expect(runs.withLock { $0 } == 8)
        client.withLock { $0 = nil }
    }

    @Test("once optOut has returned no event is taken in, whatever 8 threads track (D16); refusals are counted (I12)")
    func optOutIsLinear() async throws {
        let test = try TestClient { $0.queue.mailboxCapacity = 100_000 }
        let client = test.client
        let taken = Locked(0)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    for _ in 0..<500 where client.track("event") != nil { taken.withLock { $0 += 1 } }
                }
            }
            group.addTask {
                try? client.setConsent(.denied)
                for _ in 0..<100 { #expect(client.track("after") == nil) }
            }
        }
        try await client.writer.barrier()
        let status = await client.status()
        #expect(status.created == Int64(taken.withLock { $0 }) && status.isBalanced)
        #expect(status.dropped["opted_out"] == 4_100 - status.created)
        try client.setConsent(.granted)
        #expect(client.track("again") != nil)
    }
}

/// Tells of each commit. A barrier of the writer would make one.
private final class CommitWatch: TransactionObserver {
    let (stream, continuation) = AsyncStream.makeStream(of: Void.self)

    func observes(eventsOfKind eventKind: DatabaseEventKind) -> Bool { true }
    func databaseDidChange(with event: DatabaseEvent) {}
    func databaseDidCommit(_ db: Database) { continuation.yield() }
    func databaseDidRollback(_ db: Database) {}
}
