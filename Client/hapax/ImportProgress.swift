import Dispatch
import Foundation
import HapaxModel

/// Shows how far an import is: a bar on a terminal, else a line every few seconds. All of it on standard error.
final class ImportProgress: Sendable {
    private let isTerminal: Bool
    /// nil for what has no size.
    private let size: Int64?
    private let state: Locked<State>
    private let queue = DispatchQueue(label: "hapax.progress")
    /// Why nothing goes on, if nothing does.
    private let trouble = Locked<@Sendable () -> String?>({ nil })

    private struct State {
        var counts = ImportCounts()
        var started = ContinuousClock.now
        var changed = ContinuousClock.now
        var timer: (any DispatchSourceTimer)?
        var trouble: String?
        var shown = ImportCounts()
    }

    private static let linePeriod = 5
    private static let barMilliseconds = 200
    private static let barWidth = 30
    /// So long is nothing's fault: events that the server refuses are looked for in halves of their batch.
    private static let patience: Duration = .seconds(3)

    init(size: Int64?, isTerminal: Bool = isatty(STDERR_FILENO) == 1) {
        (self.size, self.isTerminal) = (size, isTerminal)
        state = Locked(State())
    }

    /// - Parameter trouble: Why nothing goes on; told once for each reason, on a line of its own.
    func explain(_ trouble: @escaping @Sendable () -> String?) { self.trouble.withLock { $0 = trouble } }

    /// How long nothing has been settled, or been read through.
    var quiet: Duration { state.withLock { ContinuousClock.now - $0.changed } }

    func update(_ counts: ImportCounts) {
        state.withLock { state in
            if counts.settled != state.counts.settled || counts.lines != state.counts.lines { state.changed = .now }
            state.counts = counts
        }
    }

    func start() {
        let timer = DispatchSource.makeTimerSource(queue: queue)
        if isTerminal {
            timer.schedule(deadline: .now(), repeating: .milliseconds(Self.barMilliseconds))
        } else {
            timer.schedule(deadline: .now() + .seconds(Self.linePeriod), repeating: .seconds(Self.linePeriod))
        }
        timer.setEventHandler { [weak self] in self?.show() }
        timer.resume()
        state.withLock { $0.timer = timer }
    }

    func finish() {
        explain { nil }
        state.withLock { state in
            state.timer?.cancel()
            state.timer = nil
        }
        queue.sync {
            guard isTerminal else { return }
            show()
            write("\n")
        }
    }

    private func show() {
        let trouble = quiet < Self.patience ? nil : trouble.withLock { $0 }()
        let isNews = state.withLock { state in
            defer { state.trouble = trouble }
            return state.trouble != trouble
        }
        if isNews, let trouble { write((isTerminal ? "\r\u{1B}[K" : "") + "hapax: waits: " + Terminal.printable(trouble) + "\n") }
        if let text = nextText() { write(isTerminal ? "\r\u{1B}[K" + text : "hapax: " + text + "\n") }
    }

    /// - Returns: nil where a line would say the same once more.
    func nextText() -> String? {
        let (counts, elapsed, isNews) = state.withLock { state in
            defer { state.shown = state.counts }
            return (state.counts, ContinuousClock.now - state.started, state.counts != state.shown)
        }
        guard isNews || isTerminal else { return nil }
        let rate = Int(Double(counts.settled) / max(elapsed / .seconds(1), 0.001))
        var text = "\(counts.settled) events, \(rate)/s, \(counts.duplicates) duplicates, \(counts.rejected) rejected"
        if let size, size > 0 {
            let part = min(Double(counts.offset) / Double(size), 1)
            let percent = "\(Int(part * 100))%"
            if isTerminal {
                let done = Int(part * Double(Self.barWidth))
                let bar = String(repeating: "#", count: done) + String(repeating: ".", count: Self.barWidth - done)
                text = "[\(bar)] \(percent)  \(text)"
            } else {
                text = "\(percent), \(text)"
            }
        }
        return text
    }

    private func write(_ text: String) {
        Terminal.note(text)
    }
}
