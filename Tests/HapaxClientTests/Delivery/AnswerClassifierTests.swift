import HapaxModel
import HapaxTestKit
import Testing

@testable import HapaxClient

@Suite("AnswerClassifier: the client's table of answers, every row (I5, R6)", .endsWhenItHangs)
struct AnswerClassifierTests {
    private let batchID = EventID.derived(name: "batch", key: "1")
    private let ids = [EventID.derived(name: "event", key: "1"), EventID.derived(name: "event", key: "2")]

    private func classify(_ answer: TransportAnswer) -> AnswerClassifier.Answer {
        AnswerClassifier.classify(.success(answer), batchID: batchID, sent: ids, now: 0)
    }

    private func receipt(batchID: EventID?, received: Int = 2, stored: Int = 2) -> TransportAnswer {
        TransportAnswer(status: 200, body: Receipt(batchID: batchID, received: received, stored: stored, results: []).encoded())
    }

    @Test(arguments: [200, 201, 202])
    func completeReceiptIsAccepted(status: Int) {
        var answer = receipt(batchID: batchID)
        answer.status = status
        #expect(classify(answer) == .accepted(ids.enumerated().map { Receipt.Result(index: $0, eventID: $1, outcome: .stored) }))
    }

    @Test("2xx otherwise: kept, backed off", arguments: ["<html>Please log in</html>", "", "{}", "null", #"{"batch_id":"#])
    func foreignSuccessIsNoReceipt(body: String) {
        #expect(classify(TransportAnswer(status: 200, body: Array(body.utf8))) == .tryLater(.notAReceipt(status: 200), retryAfter: nil))
    }

    @Test("2xx whose counts or batch are not ours: kept")
    func receiptOfAnotherBatchIsNoReceipt() {
        let no = AnswerClassifier.Answer.tryLater(.notAReceipt(status: 200), retryAfter: nil)
        #expect(classify(receipt(batchID: ids[0])) == no)
        #expect(classify(receipt(batchID: nil)) == no)
        #expect(classify(receipt(batchID: batchID, received: 1, stored: 1)) == no)
        #expect(classify(receipt(batchID: batchID, stored: 1)) == no)
        #expect(classify(receipt(batchID: batchID, received: 3, stored: 3)) == no)
    }

    @Test("a receipt that is cut anywhere is no receipt")
    func cutReceiptIsNoReceipt() {
        let whole = receipt(batchID: batchID)
        for end in 0..<whole.body.count {
            let cut = TransportAnswer(status: 200, body: Array(whole.body[..<end]))
            #expect(classify(cut) == .tryLater(.notAReceipt(status: 200), retryAfter: nil))
        }
    }

    @Test("3xx: kept, backed off", arguments: [301, 302, 304, 307, 308])
    func redirectIsTriedLater(status: Int) {
        #expect(classify(TransportAnswer(status: status)) == .tryLater(.status(status, code: nil), retryAfter: nil))
    }

    @Test("our own 400 and 413: the batch is refused", arguments: RequestProblem.Code.allCases.filter(\.concernsBatch))
    func ownProblemRefusesTheBatch(code: RequestProblem.Code) {
        #expect(classify(.problem(code)) == .batchRefused(code))
    }

    @Test(
        "a foreign 400, 403, 406, 422 or 451 may be about what one event holds, and says nothing about any (C4)",
        arguments: [400, 403, 406, 422, 451])
    func foreignRefusalMayPassOthers(status: Int) {
        #expect(classify(TransportAnswer(status: status)) == .blocked(.status(status, code: nil)))
    }

    @Test("a foreign 400 says nothing about any event; a foreign 413 says that the batch is too large, and nothing about any event")
    func foreignRefusalCondemnsNothing() {
        var html = TransportAnswer(status: 400, headers: ["content-type": "text/html"], body: Array("<h1>Bad Request</h1>".utf8))
        #expect(classify(html) == .blocked(.status(400, code: nil)))
        html.status = 413
        #expect(classify(html) == .tooMuch(.status(413, code: nil)))
        var wrongType = TransportAnswer.problem(.malformed)
        wrongType.headers["content-type"] = "application/json"
        #expect(classify(wrongType) == .blocked(.status(400, code: nil)))
        var wrongStatus = TransportAnswer.problem(.malformed)
        wrongStatus.status = 413
        #expect(classify(wrongStatus) == .tooMuch(.status(413, code: nil)))
        let unknown = TransportAnswer(
            status: 400, headers: ["content-type": RequestProblem.contentType], body: Array(#"{"code":"novelty","status":400}"#.utf8))
        #expect(classify(unknown) == .blocked(.status(400, code: nil)))
    }

    @Test(
        "paused, and never dropped (D12)", arguments: [100, 401, 402, 404, 405, 409, 410, 411, 415, 418, 431, 600, 999])
    func whateverTimeAloneDoesNotChangePauses(status: Int) {
        #expect(classify(TransportAnswer(status: status)) == .pause(.status(status, code: nil)))
    }

    @Test(arguments: [
        RequestProblem.Code.unknownKey, .wrongKeyKind, .rangeTooLarge, .notFound, .methodNotAllowed, .unsupportedType, .unsupportedEncoding,
    ])
    func ownRefusalOfTheRequestPausesWithItsCode(code: RequestProblem.Code) {
        #expect(classify(.problem(code)) == .pause(.status(code.status, code: code.rawValue)))
    }

    @Test("tried later", arguments: [408, 425, 429, 500, 502, 503, 504, 599])
    func serverTroubleIsTriedLater(status: Int) {
        #expect(classify(TransportAnswer(status: status)) == .tryLater(.status(status, code: nil), retryAfter: nil))
        let wish = TransportAnswer(status: status, headers: ["retry-after": "7"])
        #expect(classify(wish) == .tryLater(.status(status, code: nil), retryAfter: .seconds(7)))
    }

    @Test(arguments: [TransportFailure.unknownHost, .cannotConnect, .tls, .cut, .answerTooLarge, .aborted, .other(1)])
    func noAnswerIsTriedLater(failure: TransportFailure) {
        let answer = AnswerClassifier.classify(.failure(failure), batchID: batchID, sent: ids, now: 0)
        #expect(answer == .tryLater(.transport(failure), retryAfter: nil))
    }
}
