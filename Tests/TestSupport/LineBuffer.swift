import HapaxModel

/// Lines that have arrived and not been read, between one thread that appends and any tasks that wait.
final class LineBuffer: Sendable {
    private struct State {
        var partial: [UInt8] = []
        var lines: [String] = []
        var read = 0
        var hasEnded = false
        var waiting: [(ticket: Int, continuation: CheckedContinuation<String?, Never>)] = []
        var cancelled: Set<Int> = []
        var nextTicket = 0

        mutating func take() -> String?? {
            if read < lines.count {
                defer {
                    read += 1
                    if read == lines.count { (lines, read) = ([], 0) }
                }
                return .some(lines[read])
            }
            return hasEnded ? .some(nil) : nil
        }
    }
    private let state = Locked(State())

    func append(_ bytes: [UInt8]) {
        deliver { state in
            var rest = bytes[...]
            while let end = rest.firstIndex(of: 0x0A) {
                state.lines.append(String(decoding: state.partial + rest[..<end], as: UTF8.self))
                state.partial.removeAll(keepingCapacity: true)
                rest = rest[(end + 1)...]
            }
            state.partial += rest
        }
    }

    /// A last line without its end is not delivered: a killed writer may have been cut in the middle of it.
    func end() {
        deliver { $0.hasEnded = true }
    }

    private func deliver(_ change: (inout State) -> Void) {
        let resumptions = state.withLock { state in
            change(&state)
            var resumptions: [(CheckedContinuation<String?, Never>, String?)] = []
            while !state.waiting.isEmpty, let line = state.take() {
                resumptions.append((state.waiting.removeFirst().continuation, line))
            }
            return resumptions
        }
        for (continuation, line) in resumptions { continuation.resume(returning: line) }
    }

    func next() async -> String? {
        let ticket = state.withLock { state in
            state.nextTicket += 1
            return state.nextTicket
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let line: String?? = state.withLock { state in
                    if state.cancelled.remove(ticket) != nil { return .some(nil) }
                    if let line = state.take() { return line }
                    state.waiting.append((ticket, continuation))
                    return nil
                }
                if let line { continuation.resume(returning: line) }
            }
        } onCancel: {
            let continuation = state.withLock { state in
                guard let index = state.waiting.firstIndex(where: { $0.ticket == ticket }) else {
                    state.cancelled.insert(ticket)
                    return nil as CheckedContinuation<String?, Never>?
                }
                return state.waiting.remove(at: index).continuation
            }
            continuation?.resume(returning: nil)
        }
    }
}
