import Foundation
import HapaxClient
import HapaxModel
import TestSupport

/// The steps in which processes track.
extension History {
    // MARK: - Workers

    /// A worker and what it has said.
    private struct Running {
        var process: ChildProcess
        var run: String
        var install: EventID?
        var lines = 0
        /// How often it said that an event could not be stored.
        var unstored = 0
        var hasEnded = false
    }

    func perform(_ work: HistoryStep.Work, _ step: Int) async throws {
        var main = try start(work, "work\(step)", step, count: work.lines + (work.end == .kill ? 100 : 1_000))
        if work.isKilledAtStart {
            if Bool.random(using: &random) { await read(&main, until: 1) } else { try await killSoon(main.process, within: 120) }
            await end(&main, .kill)
            return
        }
        await read(&main, until: 2)
        var companion: Running?
        if let planned = work.companion {
            var running = try start(work, "beside\(step)", step, count: planned.lines + (planned.end == .kill ? 100 : 1_000))
            await read(&running, until: planned.lines / 2)
            companion = running
        }
        if let damage = work.damage {
            // The file of a running client; what is in its memory is not touched.
            let number = try directory.numbers().first { FileClaim.note(of: $0, in: directory)?.install == main.install }
            audit.untellable.formUnion(ids(0).deadLetters)
            audit.damages += 1
            audit.lastDamage = step
            say("  damaged meanwhile: \(try number.map { try damage.inflict(on: directory.databasePath($0)) } ?? false)")
        }
        if work.tracksBeside > 0 {
            var tracks = HistoryStep.Tracks(count: work.tracksBeside)
            tracks.delivers = false
            try await perform(tracks, step, run: "trackBeside\(step)")
        }
        await read(&main, until: work.lines / 2)
        if work.serverIsRestarted, server != nil {
            await server?.kill()
            server = nil
            try await startServer()
        }
        await read(&main, until: work.lines + 1)
        guard var companion, let planned = work.companion else { return await end(&main, work.end) }
        await read(&companion, until: planned.lines + 1)
        if planned.endsFirst {
            await end(&companion, planned.end)
            await end(&main, work.end)
        } else {
            await end(&main, work.end)
            await end(&companion, planned.end)
        }
    }

    private func start(_ work: HistoryStep.Work, _ run: String, _ step: Int, count: Int) throws -> Running {
        audit.steps[run] = step
        audit.spokenOf[run] = [:]
        if isOptedOut { audit.refusedRuns.insert(run) }
        var arguments = [
            "track", "--level", work.level.rawValue, "--threads", "\(work.threads)", "--durably", "--bulk", "\(work.bulk)", "--label", run,
            "--count", "\(count)",
        ]
        if work.fill > 0 { arguments += ["--fill", "\(work.fill)"] }
        return Running(process: try ChildProcess("hapax-test-worker", arguments + place), run: run)
    }

    /// Reads until so many lines have come, the introduction included, or the worker has ended. On a full disk no more may come: a few failures
    /// are enough then.
    private func read(_ running: inout Running, until count: Int) async {
        let child = running.process
        let watch = watch(child, running.run)
        defer { watch.cancel() }
        while running.lines < count, !running.hasEnded, count == .max || running.unstored < 8 {
            guard let line = await child.nextLine() else {
                running.hasEnded = true
                return
            }
            note(line, &running)
        }
    }

    private func end(_ running: inout Running, _ end: HistoryStep.Work.End) async {
        if end == .kill { running.process.kill() } else { running.process.terminate() }
        await read(&running, until: .max)
        // Ends by itself when it has tracked its count, or when nothing is taken.
        await self.end(
            of: running.process, "\(running.run), \(running.lines) lines", accepting: isOptedOut ? [0, 74] : [0], killed: end == .kill)
    }

    private func note(_ line: String, _ running: inout Running) {
        running.lines += 1
        let words = line.split(separator: " ").map(String.init)
        guard let last = words.last else { return }
        let step = audit.steps[running.run] ?? 0
        switch words[0] {
        case "install": running.install = words.count == 2 ? EventID(uuidString: words[1]) : nil
        case "durable":
            guard words.count == 4, let id = EventID(uuidString: words[1]), let mark = Mark(last) else { return unreadable(line) }
            audit.speak(of: mark)
            audit.reports.append(
                HistoryAudit.Report(id: id, mark: mark, step: step, install: running.install, sequence: Int64(words[2])))
        case "unstored":
            guard let mark = Mark(last) else { return unreadable(line) }
            audit.speak(of: mark)
            running.unstored += 1
            // After this it may be stored all the same, also if a second call is refused.
            audit.unstored.insert(mark)
        case "refused":
            guard let mark = Mark(last) else { return unreadable(line) }
            audit.speak(of: mark)
            if !audit.unstored.contains(mark) { audit.refused.insert(mark) }
            if words[1] == "opted_out", !isOptedOut { audit.incidents.append("\(line) although nobody opted out") }
        default: unreadable(line)
        }
    }

    private func unreadable(_ line: String) { audit.incidents.append("a worker said: \(line)") }

    // MARK: - hapax track

    func perform(_ tracks: HistoryStep.Tracks, _ step: Int, run: String? = nil) async throws {
        let run = run ?? "track\(step)"
        audit.steps[run] = step
        audit.spokenOf[run] = [:]
        if isOptedOut { audit.refusedRuns.insert(run) }
        var commands: [(mark: Mark, id: EventID?, arguments: [String])] = []
        for thread in 0..<tracks.count {
            let mark = Mark(run: run, thread: thread, index: 0)
            audit.speak(of: mark)
            let rival = tracks.isConflict ? audit.reports.randomElement(using: &random) : nil
            var id = rival?.id
            if let rival {
                try await noteRival(rival, mark)
            } else if tracks.ownIDs || tracks.isKilled {
                id = UUIDv7Generator.next(&random)
            }
            var arguments = ["track", tracks.isBad ? String(repeating: "n", count: 201) : "tracked", "--json"]
            for (name, value) in mark.properties(fill: 300).byName {
                if case .string(let text) = value { arguments += ["--property", "\(name)=\(text)"] }
            }
            if let id { arguments += ["--id", id.description] }
            // Whom it concerns is part of what an event says: a script that sends it again says it again.
            arguments += ["--distinct-id", "history"]
            if !tracks.delivers { arguments.append("--no-flush") }
            commands.append((mark, id, arguments))
        }
        // A bad event is a letter each time it is tracked.
        if tracks.isKilled, !tracks.isBad, !tracks.isConflict {
            audit.repeats += commands.count
            let first = try commands.map { try spawnHapax($0.arguments) }
            for (child, command) in zip(first, commands) {
                try await killSoon(child)
                await note(await output(of: child), command.mark, step)
                await end(of: child, "track, killed", accepting: isOptedOut ? [1] : [0, 3], killed: true)
            }
        }
        let running = try commands.map { try spawnHapax($0.arguments) }
        for (child, command) in zip(running, commands) {
            await note(await output(of: child), command.mark, step, isRival: tracks.isConflict)
            await end(
                of: child, "track \(command.mark)", accepting: isOptedOut ? [1] : tracks.isConflict ? [0, 3] : tracks.isBad ? [3] : [0])
        }
    }

    private struct Tracked: Decodable {
        var event_id: String
        var dead_letter: String?
    }

    private func note(_ lines: [String], _ mark: Mark, _ step: Int, isRival: Bool = false) async {
        guard let line = lines.first else { return }
        guard let tracked = try? JSONDecoder().decode(Tracked.self, from: Data(line.utf8)), let id = EventID(uuidString: tracked.event_id)
        else {
            audit.incidents.append("track said: \(line)")
            return
        }
        // The other event's report stays what must be kept.
        if isRival, audit.rivals[id] != nil { return }
        audit.reports.append(HistoryAudit.Report(id: id, mark: mark, step: step, isLetter: tracked.dead_letter != nil))
    }

    /// If the first is stored already, it stays; else whichever comes first.
    private func noteRival(_ first: HistoryAudit.Report, _ mark: Mark) async throws {
        audit.repeats += 1
        let isStored = try await store.events().contains { $0.id == first.id }
        audit.rivals[first.id, default: []].formUnion(isStored ? [] : [mark])
    }
}

extension UUIDv7Generator where Randomness == BufferedRandomness {
    /// One id of the present.
    static func next(_ random: inout SeededRandom) -> EventID {
        var ids = UUIDv7Generator<SeededRandom>(randomness: SeededRandom(seed: random.next()))
        return ids.next(unixMilliseconds: Int64(Date().timeIntervalSince1970 * 1_000))
    }
}

extension HistoryAudit {
    mutating func speak(of mark: Mark) {
        spokenOf[mark.run, default: [:]][mark.thread] = max(spokenOf[mark.run]?[mark.thread] ?? 0, mark.index)
    }
}
