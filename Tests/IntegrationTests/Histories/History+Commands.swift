import Foundation
import HapaxModel
import TestSupport

@testable import HapaxClient

/// The steps in which commands run on a queue that nobody else works on, and what happens to its files.
extension History {
    // MARK: - Delivering

    func flush(_ killAfter: Int?) async throws {
        let accepted: Set<Int32> = audit.isDamaged ? [0, 1, 2, 3] : [0, 2, 3]
        guard let killAfter else {
            _ = try await hapax(["flush", "--timeout", "10"], accepting: accepted)
            return
        }
        let child = try spawnHapax(["flush"])
        if killAfter == 0 { try await killSoon(child) } else { await kill(child, afterRequests: killAfter) }
        await end(of: child, "flush, killed", accepting: accepted, killed: true)
    }

    /// Or does nothing if it ends by itself, without so many.
    private func kill(_ child: ChildProcess, afterRequests count: Int) async {
        let hasEnded = Locked(false)
        let before = proxy.tally.exchanges.count
        let watch = watch(child, child.name)
        defer { watch.cancel() }
        let end = Task { [proxy] in
            _ = await child.waitUntilExit()
            hasEnded.withLock { $0 = true }
            proxy.lookAgain()
        }
        await proxy.wait { tally in tally.exchanges.count >= before + count || hasEnded.withLock { $0 } }
        child.kill()
        await end.value
    }

    func importFile(_ count: Int, _ bad: Int, _ killAfter: Int?, _ isAgain: Bool, _ step: Int) async throws {
        let file: Import
        if isAgain, let unfinished = unfinishedImports.popLast() {
            file = unfinished
        } else {
            file = try makeFile(count, bad, step)
        }
        let child = try spawnHapax(["import", file.file, "--give-up-after", "1"])
        let accepted: Set<Int32> = [0, 2, 3]
        if let killAfter {
            if killAfter == 0 { try await killSoon(child) } else { await kill(child, afterRequests: killAfter) }
        }
        switch await end(of: child, "import", accepting: accepted, killed: killAfter != nil) {
        case .exited(0), .exited(3):
            for (line, id) in file.ids.enumerated() {
                // The last ones are in the file of rejected lines.
                guard line < file.ids.count - file.bad else { continue }
                audit.reports.append(HistoryAudit.Report(id: id, mark: Mark(run: file.run, thread: 0, index: line), step: step))
            }
        default: unfinishedImports.append(file)
        }
    }

    /// Every line has an id; the last ones are too bad to be stored.
    private func makeFile(_ count: Int, _ bad: Int, _ step: Int) throws -> Import {
        let run = "import\(step)"
        audit.steps[run] = step
        audit.spokenOf[run] = [0: count + bad]
        var lines = ""
        var ids: [EventID] = []
        for line in 0..<count + bad {
            let id = UUIDv7Generator.next(&random)
            ids.append(id)
            let name = line < count ? "imported" : String(repeating: "n", count: 201)
            let event = Event(
                id: id, name: name, time: 1_700_000_000_000, distinctID: "u",
                properties: Mark(run: run, thread: 0, index: line).properties(fill: 500))
            lines += String(decoding: event.encoded().bytes, as: UTF8.self) + "\n"
        }
        let path = home.path("\(run).ndjson")
        try Data(lines.utf8).write(to: URL(filePath: path))
        return Import(file: path, run: run, ids: ids, bad: bad)
    }

    // MARK: - Deciding

    private struct Purged: Decodable {
        var purged, purged_dead_letters: Int
    }

    func purge(_ withLetters: Bool, _ isKilled: Bool, _ step: Int) async throws {
        let stored = Set(try await store.events().map(\.id))
        let child = try spawnHapax(["queue", "purge", "--yes", "--json"] + (withLetters ? ["--with-dead-letters"] : []))
        if isKilled { try await killSoon(child) }
        let lines = await output(of: child)
        // A damaged queue has to be opened by somebody else first.
        let exit = await end(of: child, "purge", accepting: audit.isDamaged ? [0, 1] : [0], killed: isKilled)
        audit.lastPurge = step
        let said = lines.first.flatMap { try? JSONDecoder().decode(Purged.self, from: Data($0.utf8)) }
        audit.purged = said.flatMap { said in audit.purged.map { $0 + said.purged } }
        audit.purgedLetters += said?.purged_dead_letters ?? 0
        guard exit == .exited(0) else { return }
        audit.purges.append(
            HistoryAudit.Purge(step: step, stored: stored, deadLetters: Set((try? deadLetters().compactMap(\.id)) ?? [])))
    }

    func retryLetters(_ isKilled: Bool) async throws {
        let child = try spawnHapax(["dead-letters", "retry", "--all"])
        if isKilled { try await killSoon(child) }
        _ = await output(of: child)
        await end(of: child, "retry", accepting: audit.isDamaged ? [0, 1, 3] : [0, 3], killed: isKilled)
    }

    func changeOptOut(_ isOptedOut: Bool) async throws {
        _ = try await hapax(["identity", isOptedOut ? "opt-out" : "opt-in", "--json"])
    }

    // MARK: - Damage

    func damage(_ kind: QueueDamageKind, _ step: Int) async throws {
        // The first one, or any.
        let numbers = try directory.numbers()
        guard let number = kind.file == .main ? numbers.first : numbers.randomElement(using: &random) else { return }
        let held = ids(number)
        guard try kind.inflict(on: directory.databasePath(number)) else { return }
        say("  damaged file \(number)")
        audit.damages += 1
        if kind.isUntellable {
            audit.untellable.formUnion(held.waiting.union(held.deadLetters))
            audit.logWasDamaged = true
        } else {
            audit.lastDamage = step
        }
    }

    /// What a file holds; what it could hold, if that cannot be read.
    func ids(_ number: Int) -> (waiting: Set<EventID>, deadLetters: Set<EventID>) {
        guard let file = try? QueueContents(queue).files.first(where: { $0.number == number }) else {
            return (Set(audit.reports.map(\.id)), Set(audit.reports.filter(\.isLetter).map(\.id)))
        }
        return (file.waiting, Set(file.deadLetters.compactMap(\.eventID)))
    }
}
