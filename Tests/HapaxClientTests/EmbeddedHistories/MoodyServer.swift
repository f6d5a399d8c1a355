import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport

@testable import HapaxClient

/// The server of a history: it stores each id once, and answers as its mood is.
final class MoodyServer: Sendable {
    struct Stored: Equatable {
        var install: EventID?
        var sequence: Int64?
        var content: [UInt8]
    }

    struct State {
        var random: SeededRandom
        var isRough = false
        var stored: [EventID: Stored] = [:]
        var numbers: [String: EventID] = [:]
        var complaints: [String] = []
        var damage: [String] = []
        /// By install and reason: how many sequences will never come.
        var gone: [EventID: [String: Int64]] = [:]
        var told: Set<String> = []
    }
    let state: Locked<State>

    init(seed: UInt64) { state = Locked(State(random: SeededRandom(seed: seed))) }

    @Sendable func answer(_ batch: SentBatch) async -> Result<TransportAnswer, TransportFailure> {
        for _ in 0..<state.withLock({ Int.random(in: 0...20, using: &$0.random) }) { await Task.yield() }
        return state.withLock { state in
            let luck = state.isRough ? Int.random(in: 0..<24, using: &state.random) : 99
            switch luck {
            case 0, 1: return .failure(.cut)
            case 2: return .success(.problem(.internalError))
            case 3: return .success(.problem(.overloaded, headers: ["retry-after": "7"]))
            case 4: return .success(.problem(.unknownKey))
            case 5 where batch.scanned.events.count > 1: return .success(.problem(.tooManyEvents))
            case 6: return .success(TransportAnswer(status: 200, headers: ["content-type": "application/json"], body: Array("{}".utf8)))
            case 7: return .success(TransportAnswer(status: 302, headers: [:], body: []))
            default: break
            }
            // A bug that refuses whoever comes with one of these.
            if batch.names.contains("poison") { return .success(.problem(.malformed)) }
            state.note(batch.scanned.envelope)
            let retried = luck == 8 ? batch.scanned.events.first?.id : nil
            let answer = batch.receipt { event in
                guard let id = event.id, event.problem == nil, event.name != Array("rejected".utf8)[...] else { return .rejected }
                if id == retried { return .retry }
                return state.store(event, id, batch) ? .stored : .duplicate
            }
            if luck == 9 || luck == 10 { return .failure(.cut) }
            return .success(answer)
        }
    }
}

extension MoodyServer.State {
    mutating func note(_ envelope: EventBatch.Envelope) {
        guard let install = envelope.installID else { return }
        for range in envelope.removed where ["purged", "quota_age", "quota_oldest"].contains(range.reason) {
            for sequence in range.sequences where told.insert("\(install) \(sequence)").inserted {
                gone[install, default: [:]][range.reason, default: 0] += 1
            }
        }
    }

    /// - Returns: Whether it was new.
    mutating func store(_ event: ScannedEvent, _ id: EventID, _ batch: SentBatch) -> Bool {
        let new = MoodyServer.Stored(
            install: batch.scanned.envelope.installID, sequence: event.sequence,
            content: event.name + [0] + event.distinctID + [0] + Array("\(event.time)".utf8) + event.properties)
        if let before = stored[id] {
            // Each run says anew who logged in, at its own time; and a session's end is told once more, in other words, if what says that it
            // was told is damaged or could not be written. Their derived ids make one event of that.
            if ["$identify", "$AppEnd"].contains(String(decoding: event.name, as: UTF8.self)) { return false }
            // What is recovered from a damaged file, be it delivered, is another install's, with another sequence.
            let isMoved = before.install != new.install
            if before.content != new.content || (before != new && !isMoved) {
                complaints.append(
                    "\(id): \(new.sequence ?? 0), \(new.content.count) bytes, was \(before.sequence ?? 0), \(before.content.count) bytes")
            }
            return false
        }
        stored[id] = new
        if event.name == Array("$QueueDamaged".utf8)[...] { damage.append(String(decoding: event.properties, as: UTF8.self)) }
        if let sequence = event.sequence {
            let key = "\(String(describing: batch.scanned.envelope.installID)) \(sequence)"
            if let other = numbers[key], other != id { complaints.append("\(key) is of \(other) and \(id)") }
            numbers[key] = id
        }
        return true
    }
}
