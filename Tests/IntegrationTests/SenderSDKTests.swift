import Foundation
import HapaxModel
import TestSupport
import Testing

/// Unmodified SDKs of other vendors, from their package index, against the real server.
@Suite("Other vendors' SDKs (I2)", .endsWhenItHangs)
struct SenderSDKTests {
    enum SDK: String, CaseIterable, Sendable {
        case segment, rudder, posthog
        case posthogResults = "posthog-v1"
        case amplitude, mixpanel, sensors, snowplow, cloudevents
    }

    private static let readKey = "read-key-of-demo"

    /// Installs the SDKs below `.build`, once.
    ///
    /// - Returns: Where they are; nil where Python has no pip, or the index cannot be reached.
    private static let packages = Task<String?, Never> {
        let place = PackageLayout.root.appending(path: ".build/senders").path
        if FileManager.default.fileExists(atPath: place + "/complete") { return place }
        let install =
            "python3 -m pip install --quiet --target \"$0\" 'segment-analytics-python==2.*' 'rudder-sdk-python==2.*' 'posthog==7.*' 'amplitude-analytics==1.*' 'mixpanel==5.*' 'SensorsAnalyticsSDK==1.*' 'snowplow-tracker==1.*' 'cloudevents==2.*' && touch \"$0/complete\""
        guard let process = try? ChildProcess("/bin/sh", ["-c", install, place]), await process.waitUntilExit() == .exited(0) else {
            return nil
        }
        return place
    }

    @Test(
        "Each event that an SDK did not give up itself is stored once: clean, with answers lost after the commit and requests cut, while the server is killed",
        arguments: PipelineStore.Kind.allCases, SDK.allCases)
    func eventsAreStoredOnce(kind: PipelineStore.Kind, sdk: SDK) async throws {
        guard let packages = await Self.packages.value else {
            print("Skipped: the SDKs of other vendors cannot be installed here (python3 -m pip install).")
            return
        }
        let store = try await PipelineStore(kind)
        var server = try await ServerUnderTest.start(store, readKey: Self.readKey)
        let proxy = try FaultProxy(to: server.port)
        @Sendable func send(_ first: Int, _ count: Int) async throws -> Set<Int> {
            let script = PackageLayout.root.appending(path: "Tests/IntegrationTests/senders.py").path
            let process = try ChildProcess(
                "/bin/sh",
                ["-c", "exec python3 \"$@\"", "sh", script, sdk.rawValue, "\(proxy.port)", ServerUnderTest.key, "\(first)", "\(count)"],
                environment: ["PYTHONPATH": packages])
            let lines = await process.remainingLines()
            #expect(await process.waitUntilExit() == .exited(0) && lines.last == "done", "\(process.standardErrorTail)")
            return Set(lines.compactMap { $0.hasPrefix("lost ") ? Int($0.split(separator: " ")[1]) : nil })
        }
        var lost = try await send(0, 250)
        proxy.follow(.script([.dropAnswer, .cutRequest(after: 300), .dropAnswer, .resetAfterAnswer]))
        lost.formUnion(try await send(250, 250))
        #expect(proxy.tally.happened(.dropAnswer) == 2)
        await server.kill()
        async let last = send(500, 250)
        server = try await ServerUnderTest.start(store, readKey: Self.readKey)
        proxy.retarget(to: server.port)
        lost.formUnion(try await last)
        // Amplitude's forgets a batch whose connection ends without an answer; it may be stored.
        #expect(lost.isEmpty || sdk == .amplitude, "by the SDK's own account")
        let marks = try await Self.marks(server)
        #expect(Set(marks).count == marks.count && Set(0..<750).subtracting(lost).isSubset(of: marks), "\(lost.count) lost")
        await server.stop()
    }

    /// The marks of all rows, sorted.
    private static func marks(_ server: ServerUnderTest) async throws -> [Int] {
        var (marks, cursor) = ([Int](), "")
        repeat {
            let path = "/v1/events?limit=500" + (cursor.isEmpty ? "" : "&after=\(cursor)")
            let answer = try await RawHTTP.get(port: server.port, path: path, headers: ["Authorization": "Bearer \(readKey)"])
            let text = String(decoding: answer.body, as: UTF8.self)
            marks += text.matches(of: /"mark": ?(\d+)/).compactMap { Int($0.1) }
            cursor = text.firstMatch(of: /"next":"([^"]+)"/).map { String($0.1) } ?? ""
        } while !cursor.isEmpty
        return marks.sorted()
    }
}
