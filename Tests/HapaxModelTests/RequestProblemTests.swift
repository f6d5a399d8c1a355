import Foundation
import HapaxModel
import Testing

/// docs/protocol.md, refusals of whole requests: only our own refusal, in all its parts, may move the client to split a batch.
@Suite(.endsWhenItHangs)
struct RequestProblemTests {
    @Test func eachCodeIsReadBack() {
        for code in RequestProblem.Code.allCases {
            let body = RequestProblem(code, detail: "d").encoded(requestID: "r")
            for type in [
                "application/problem+json", "application/problem+json; charset=utf-8", "Application/Problem+JSON;x",
                "application/problem+json ",
            ] {
                #expect(RequestProblem.code(status: code.status, contentType: type, body: body) == code)
            }
        }
    }

    @Test func theBodyIsAProblemOfRFC9457() throws {
        let body = RequestProblem(.tooManyEvents, detail: "\"quoted\"\n").encoded(requestID: "r\"1")
        let object = try #require(try JSONSerialization.jsonObject(with: Data(body)) as? [String: Any])
        #expect(object["type"] as? String == "about:blank")
        #expect(object["title"] as? String == "The batch holds too many events")
        #expect(object["status"] as? Int == 413)
        #expect(object["code"] as? String == "too_many_events")
        #expect(object["detail"] as? String == "\"quoted\"\n")
        #expect(object["request_id"] as? String == "r\"1")
    }

    @Test func furtherMembersStandBehindTheOthers() throws {
        let body = RequestProblem(.invalidParameter, detail: "d", members: ["parameter": "limit"]).encoded(requestID: "r")
        let object = try #require(try JSONSerialization.jsonObject(with: Data(body)) as? [String: Any])
        #expect(object["parameter"] as? String == "limit" && object["code"] as? String == "invalid_parameter")
    }

    @Test func foreignAnswersHaveNoCode() {
        let body = RequestProblem(.malformed, detail: "d").encoded(requestID: "r")
        let type = RequestProblem.contentType
        #expect(RequestProblem.code(status: 400, contentType: nil, body: body) == nil)
        for other in [
            "application/json", "text/html", "", "application/problem", "application/problem+jsonx", "application/problem+json-seq",
        ] {
            #expect(RequestProblem.code(status: 400, contentType: other, body: body) == nil, "\(other)")
        }
        #expect(RequestProblem.code(status: 413, contentType: type, body: body) == nil)
        #expect(RequestProblem.code(status: 400, contentType: type, body: Array(body.dropLast())) == nil)
        #expect(RequestProblem.code(status: 400, contentType: type, body: []) == nil)
        for text in [
            #"{"code":"unheard_of","status":400}"#, #"{"code":"malformed","status":413}"#, #"{"code":"malformed"}"#, #"{"status":400}"#,
            #"{"code":1,"status":400}"#, #"{"code":"body_too_large","status":400}"#, "[]", "<html>",
        ] {
            #expect(RequestProblem.code(status: 400, contentType: type, body: Array(text.utf8)) == nil, "\(text)")
        }
        #expect(RequestProblem.code(status: 413, contentType: type, body: Array(#"{"code":"malformed","status":413}"#.utf8)) == nil)
    }

    @Test("only refusals of 400 and 413 concern the batch, and of these not those of a question or of one foreign event")
    func batchConcernsFollowTheStatus() {
        for code in RequestProblem.Code.allCases {
            #expect(code.concernsBatch == (code.status == 400 && ![.invalidParameter, .rejected].contains(code) || code.status == 413))
            #expect(!code.title.isEmpty)
        }
    }
}
