import Foundation
import HapaxModel
import TestSupport

@testable import HapaxClient

/// Lives through one plan: one queue directory, one server, a proxy in between, and what everybody said.
actor History {
    let plan: HistoryPlan
    let store: PipelineStore
    let proxy: FaultProxy
    let home: TemporaryDirectory
    let disk: TinyDisk?
    var server: ServerUnderTest?
    var audit = HistoryAudit()
    var random: SeededRandom
    /// Imports that were not finished: file, run, ids.
    var unfinishedImports: [Import] = []
    /// What happened, for a failure's message.
    var log: [String] = []

    struct Import: Sendable {
        var file: String
        var run: String
        var ids: [EventID]
        /// How many of the last ones are too bad to be stored.
        var bad: Int
    }

    /// Whatever has not ended after this never will.
    private static let patience: Duration = .seconds(120)

    init(_ plan: HistoryPlan) async throws {
        self.plan = plan
        store = try await PipelineStore(plan.kind)
        let server = try await ServerUnderTest.start(store)
        self.server = server
        proxy = try FaultProxy(to: server.port)
        home = TemporaryDirectory("history")
        disk = plan.isOnTinyDisk ? TinyDisk(bytes: 8 * 1024 * 1024) : nil
        random = SeededRandom(seed: plan.seed &+ 1)
    }

    /// Lives it, ends all faults, drains.
    ///
    /// - Returns: What the end can be judged by.
    func live() async throws -> HistoryAudit {
        for (number, (step, weather)) in plan.steps.enumerated() {
            proxy.follow(.weather(weather, seed: plan.seed &* 1_000 &+ UInt64(number)))
            say("\(number): \(step) [\(weather)]")
            try await perform(step, number)
            try await settle()
        }
        proxy.follow(.pass)
        disk?.unfill()
        try await startServer()
        try await drain()
        await server?.stop()
        audit.rows = try await store.events()
        return audit
    }

    private func perform(_ step: HistoryStep, _ number: Int) async throws {
        switch step {
        case .work(let work): try await perform(work, number)
        case .track(let tracks): try await perform(tracks, number)
        case .importFile(let lines, let bad, let killAfter, let isAgain):
            try await importFile(lines, bad, killAfter, isAgain, number)
        case .flush(let killAfter): try await flush(killAfter)
        case .purge(let withLetters, let isKilled): try await purge(withLetters, isKilled, number)
        case .retryLetters(let isKilled): try await retryLetters(isKilled)
        case .optOut: try await changeOptOut(true)
        case .optIn: try await changeOptOut(false)
        case .damage(let kind): try await damage(kind, number)
        case .fillDisk(let rest): disk?.fill(except: rest)
        case .freeDisk: disk?.unfill()
        case .stopServer:
            await server?.kill()
            server = nil
        case .startServer: try await startServer()
        }
    }

    /// What a killed client has sent may still be on its way.
    private func settle() async throws {
        let watch = Task {
            try await Task.sleep(for: Self.patience)
            audit.incidents.append("\(log.count) the network did not settle: \(proxy.openConnections) connections")
            // Ends what it waits for; this history has failed.
            proxy.stop()
        }
        defer { watch.cancel() }
        try await proxy.settle()
    }

    func startServer() async throws {
        guard server == nil else { return }
        let server = try await ServerUnderTest.start(store)
        proxy.retarget(to: server.port)
        self.server = server
    }

    /// At once if one history is asked for: then it may be one that hangs.
    func say(_ line: String) {
        log.append(line)
        if ProcessInfo.processInfo.environment["HAPAX_HISTORY_SEED"] != nil { print(line) }
    }

    // MARK: - The queue's place

    nonisolated var queue: String { disk.map { $0.path + "/queue" } ?? home.path("queue") }
    nonisolated var directory: QueueDirectory { QueueDirectory(path: queue) }
    var isOptedOut: Bool { (try? directory.consent) == .denied }

    // MARK: - Processes

    nonisolated var place: [String] {
        ["--server", "http://127.0.0.1:\(proxy.port)", "--key", ServerUnderTest.key, "--queue", queue]
    }

    private nonisolated var environment: [String: String] {
        ["HAPAX_SERVER": "http://127.0.0.1:\(proxy.port)", "HAPAX_KEY": ServerUnderTest.key, "HAPAX_QUEUE": queue]
    }

    func spawnHapax(_ arguments: [String]) throws -> ChildProcess {
        try ChildProcess("hapax", arguments, environment: environment)
    }

    /// Waits for the end of a process, and notes an end that it must not have.
    ///
    /// - Parameter accepted: Exit codes; beside these, a tiny disk, which fills by itself, may end anything with 1, 69 or 74.
    @discardableResult
    func end(of child: ChildProcess, _ what: String, accepting accepted: Set<Int32>, killed: Bool = false) async -> ChildProcess.Exit {
        let watch = watch(child, what)
        let exit = await child.waitUntilExit()
        watch.cancel()
        let isExpected =
            switch exit {
            case .exited(let code): accepted.contains(code) || disk != nil && [1, 69, 74].contains(code)
            case .signaled(let signal): killed && signal == SIGKILL
            }
        say("  \(what): \(exit) \(child.standardErrorTail.suffix(300))")
        if !isExpected { audit.incidents.append("\(log.count) \(what) ended with \(exit): \(child.standardErrorTail.suffix(600))") }
        return exit
    }

    /// Until it is cancelled.
    func watch(_ child: ChildProcess, _ what: String) -> Task<Void, any Error> {
        Task {
            try await Task.sleep(for: Self.patience)
            audit.incidents.append("\(what) did not end")
            child.kill()
        }
    }

    /// All that a process says, or what it said until it hung.
    func output(of child: ChildProcess) async -> [String] {
        let watch = watch(child, child.name)
        defer { watch.cancel() }
        return await child.remainingLines()
    }

    /// Runs a command to its end.
    func hapax(_ arguments: [String], accepting accepted: Set<Int32> = [0]) async throws -> (lines: [String], exit: ChildProcess.Exit) {
        let child = try spawnHapax(arguments)
        let lines = await output(of: child)
        return (lines, await end(of: child, arguments.prefix(3).joined(separator: " "), accepting: accepted))
    }

    /// Kills at a random moment: not to wait for anything.
    func killSoon(_ child: ChildProcess, within milliseconds: Int = 80) async throws {
        try await Task.sleep(for: .milliseconds(Int.random(in: 0...milliseconds, using: &random)))
        child.kill()
    }

    // MARK: - The end

    private func drain() async throws {
        // Whoever has opted out would never hear of damage.
        try await changeOptOut(false)
        for _ in 0..<20 {
            let (lines, exit) = try await hapax(["flush", "--json"], accepting: audit.isDamaged ? [0, 1, 2, 3] : [0, 2, 3])
            say("  \(lines)")
            if exit == .exited(0) || exit == .exited(3) { break }
        }
        let (lines, _) = try await hapax(["status", "--json"], accepting: [0])
        if let line = lines.first { audit.status = try? JSONDecoder().decode(HistoryStatus.self, from: Data(line.utf8)) }
        if let status = audit.status { say("  \(status)") }
        audit.filesAside = try directory.filesSetAside().count
        audit.deadLetters = try deadLetters()
    }

    func deadLetters() throws -> [HistoryAudit.Letter] {
        try QueueContents(queue).files.flatMap { file in
            file.deadLetters.map { deadLetter in
                let object = try? JSONSerialization.jsonObject(with: Data(deadLetter.event)) as? [String: Any]
                let properties = object?["properties"] as? [String: Any]
                return HistoryAudit.Letter(
                    id: deadLetter.eventID, install: file.counters.installID, sequence: deadLetter.number, reason: deadLetter.reason,
                    mark: properties.flatMap { StoredEvent.mark(of: $0).mark })
            }
        }
    }
}
