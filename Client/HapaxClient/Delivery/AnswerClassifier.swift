import Foundation
import HapaxModel

/// What an answer means for the batch it answers: the client's table of answers, in one place.
enum AnswerClassifier {
    enum Answer: Hashable {
        /// Our complete receipt: one verdict for each event sent, in order, and the project that they went to, where the server names it.
        case accepted([Receipt.Result], project: String? = nil)
        /// The server refuses this batch as it is; a smaller one may pass.
        case batchRefused(RequestProblem.Code)
        /// Too much for the link within the deadline, or for something between client and server; a smaller batch may pass. It says nothing
        /// about any event.
        case tooMuch(DeliveryFailure)
        /// Something between client and server refuses this request, as a firewall does for what one event holds: it says nothing about any event, and
        /// others may pass.
        case blocked(DeliveryFailure)
        /// Nothing about the batch; try again later.
        case tryLater(DeliveryFailure, retryAfter: Duration?)
        /// Nothing that time alone is likely to change: probe rarely.
        case pause(DeliveryFailure)
    }

    /// What our own server says of a refusal, for people: of any other answer nothing (I14).
    ///
    /// - Parameter key: The write key, which another server could repeat.
    static func detail(of outcome: Result<TransportAnswer, TransportFailure>, without key: String) -> String? {
        guard case .success(let answer) = outcome,
            RequestProblem.code(status: answer.status, contentType: answer.headers["content-type"], body: answer.body) != nil,
            let detail = (try? JSONDecoder().decode(Sentence.self, from: Data(answer.body)))?.detail, !detail.isEmpty
        else { return nil }
        return String(detail.replacing(key, with: "…").printable.prefix(maximumDetail))
    }

    private struct Sentence: Decodable {
        var detail: String?
    }

    private static let maximumDetail = 300

    /// - Parameters:
    ///   - ids: What was sent, in order.
    ///   - now: The wall clock in Unix milliseconds.
    static func classify(
        _ outcome: Result<TransportAnswer, TransportFailure>, batchID: EventID, sent ids: [EventID], now: Int64
    ) -> Answer {
        let answer: TransportAnswer
        switch outcome {
        case .failure(.timedOut): return .tooMuch(.transport(.timedOut))
        case .failure(let failure): return .tryLater(.transport(failure), retryAfter: nil)
        case .success(let complete): answer = complete
        }
        let code = RequestProblem.code(status: answer.status, contentType: answer.headers["content-type"], body: answer.body)
        let failure = DeliveryFailure.status(answer.status, code: code?.rawValue)
        switch answer.status {
        case 200..<300:
            guard let receipt = try? Receipt(json: answer.body), let verdicts = receipt.verdicts(for: batchID, sent: ids) else {
                return .tryLater(.notAReceipt(status: answer.status), retryAfter: nil)
            }
            return .accepted(verdicts, project: receipt.project)
        case 300..<400:
            return .tryLater(failure, retryAfter: nil)
        case 400, 403, 406, 413, 422, 451:
            // Only our own word is about the batch: a proxy's 400 says nothing about any event.
            if let code { return code.concernsBatch ? .batchRefused(code) : .pause(failure) }
            return answer.status == 413 ? .tooMuch(failure) : .blocked(failure)
        case 408, 425, 429, 500..<600:
            let wish = answer.headers["retry-after"].flatMap { RetryAfter.duration($0, now: now) }
            return .tryLater(failure, retryAfter: wish)
        default:
            return .pause(failure)
        }
    }
}
