import Foundation
import HapaxModel
import TestSupport

/// A headless Chromium with one page, driven over the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/).
///
/// The protocol travels through two named pipes, which Chromium takes as descriptors 3 and 4: no port, no second library.
final class Browser: Sendable {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    static let path = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].first {
        FileManager.default.isExecutableFile(atPath: $0)
    }
    static let isMissing = "Chromium is not installed, so nothing about the page is tested: .ci/install-packages --with-chromium"

    private struct State {
        var next = 1
        var waiting: [Int: CheckedContinuation<Data, any Error>] = [:]
        var session: String?
        /// Script errors, and what the content security policy forbade.
        var complaints: [String] = []
        var hasEnded = false
    }

    private let process: ChildProcess
    let profile: String
    private let directory: TemporaryDirectory
    private let commands: Descriptor
    private let state: Locked<State>

    /// Opens a page of that size.
    ///
    /// - Parameter profile: Where the browser keeps what it knows; nil for one that knows nothing.
    init(width: Int = 1200, height: Int = 800, profile: String? = nil) async throws {
        guard let path = Self.path else { throw Failure(description: Self.isMissing) }
        let directory = TemporaryDirectory("browser")
        let (toBrowser, fromBrowser) = (directory.path("to"), directory.path("from"))
        self.profile = profile ?? directory.path("profile")
        for pipe in [toBrowser, fromBrowser] where mkfifo(pipe, 0o600) != 0 { throw Descriptor.Failure("mkfifo") }
        let flags = Self.flags(self.profile) + ["--remote-debugging-pipe", "--hide-scrollbars", "--window-size=\(width),\(height)"]
        process = try ChildProcess(
            "/bin/sh",
            [
                "-c", #"browser=$1 in=$2 out=$3; shift 3; exec "$browser" "$@" about:blank 3<"$in" 4>"$out""#, "sh", path, toBrowser,
                fromBrowser,
            ]
                + flags)
        self.directory = directory
        // Opening waits for the other end.
        commands = try await blocking { try Descriptor.opened(toBrowser, O_WRONLY) }
        let answers = try await blocking { try Descriptor.opened(fromBrowser, O_RDONLY) }
        let state = Locked(State())
        self.state = state
        Thread.detachNewThread {
            var rest: [UInt8] = []
            while let bytes = try? answers.read(), !bytes.isEmpty {
                rest += bytes
                while let end = rest.firstIndex(of: 0) {
                    Self.took(Data(rest[..<end]), state)
                    rest.removeFirst(end + 1)
                }
            }
            Self.ended(state)
        }
        struct Targets: Decodable {
            struct Target: Decodable { var targetId: String, type: String }
            var targetInfos: [Target]
        }
        struct Session: Decodable { var sessionId: String }
        let targets = try await call("Target.getTargets", as: Targets.self)
        let page = targets.targetInfos.first { $0.type == "page" }?.targetId ?? ""
        let session = try await call("Target.attachToTarget", ["targetId": page, "flatten": true], as: Session.self)
        state.withLock { $0.session = session.sessionId }
        for domain in ["Page", "Runtime", "Log"] { try await call("\(domain).enable") }
        try await resize(width: width, height: height)
    }

    // MARK: - The protocol

    private struct Message: Decodable {
        struct Problem: Decodable { var message: String }
        var id: Int?
        var method: String?
        var error: Problem?
    }

    private struct Result<Value: Decodable>: Decodable { var result: Value }

    private static func took(_ data: Data, _ state: Locked<State>) {
        guard let message = try? JSONDecoder().decode(Message.self, from: data) else { return }
        if let id = message.id {
            let waiting = state.withLock { $0.waiting.removeValue(forKey: id) }
            if let error = message.error {
                waiting?.resume(throwing: Failure(description: error.message))
            } else {
                waiting?.resume(returning: data)
            }
        } else if message.method == "Runtime.exceptionThrown" || message.method == "Log.entryAdded" {
            let text = String(decoding: data, as: UTF8.self)
            // What the network says of an answer with an error status is no error of the page.
            if !text.contains(#""source":"network""#) { state.withLock { $0.complaints.append(text) } }
        }
    }

    private static func ended(_ state: Locked<State>) {
        let waiting = state.withLock { state in
            state.hasEnded = true
            defer { state.waiting = [:] }
            return state.waiting.values
        }
        for continuation in waiting { continuation.resume(throwing: Failure(description: "the browser ended")) }
    }

    @discardableResult
    private func call(_ method: String, _ parameters: [String: Any] = [:]) async throws -> Data {
        var message: [String: Any] = ["method": method, "params": parameters]
        let (id, session) = state.withLock { state in
            state.next += 1
            return (state.next, state.session)
        }
        message["id"] = id
        message["sessionId"] = session
        let text = String(decoding: try JSONSerialization.data(withJSONObject: message), as: UTF8.self) + "\0"
        return try await withCheckedThrowingContinuation { continuation in
            let hasEnded = state.withLock { state in
                if !state.hasEnded { state.waiting[id] = continuation }
                return state.hasEnded
            }
            if hasEnded { return continuation.resume(throwing: Failure(description: "the browser has ended")) }
            do {
                try commands.write(text)
            } catch {
                state.withLock { $0.waiting.removeValue(forKey: id) }?.resume(throwing: error)
            }
        }
    }

    private func call<Answer: Decodable>(_ method: String, _ parameters: [String: Any] = [:], as: Answer.Type) async throws -> Answer {
        return try JSONDecoder().decode(Result<Answer>.self, from: try await call(method, parameters)).result
    }

    // MARK: - The page

    /// Script errors so far, and what the content security policy forbade.
    var complaints: [String] { state.withLock { $0.complaints } }

    func open(_ address: String) async throws {
        try await call("Page.navigate", ["url": address])
        try await until("document.readyState === 'complete' && location.href !== 'about:blank'")
    }

    static func flags(_ profile: String) -> [String] {
        [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update", "--user-data-dir=\(profile)",
        ]
    }

    /// Ends the browser as a crash does.
    func kill() async {
        process.kill()
        _ = await process.waitUntilExit()
    }

    func reload() async throws {
        try await run("window.isOld = true")
        try await call("Page.reload")
        try await until("!window.isOld && document.readyState === 'complete'")
    }

    /// The value of an expression, or of its promise, as text.
    @discardableResult
    func run(_ expression: String) async throws -> String {
        struct Evaluated: Decodable {
            struct Value: Decodable { var value: String? }
            struct Exception: Decodable {
                struct Thrown: Decodable { var description: String? }
                var exception: Thrown?
            }
            var result: Value
            var exceptionDetails: Exception?
        }
        let answer = try await call(
            "Runtime.evaluate",
            [
                "expression": "(async () => String(await (\(expression))))()", "awaitPromise": true, "returnByValue": true,
                "userGesture": true,
            ],
            as: Evaluated.self)
        if let exception = answer.exceptionDetails { throw Failure(description: exception.exception?.description ?? "a script failed") }
        return answer.result.value ?? ""
    }

    /// Waits until an expression is true.
    func until(_ condition: String, seconds: Int = 120) async throws {
        let outcome = try await run(
            """
            new Promise((resolve) => {
              const end = Date.now() + \(seconds * 1_000);
              const look = () => { if (\(condition)) resolve("true"); else if (Date.now() > end) resolve(document.body.innerText); else setTimeout(look, 20); };
              look();
            })
            """)
        guard outcome == "true" else { throw Failure(description: "never true: \(condition)\nThe page says:\n\(outcome)") }
    }

    func text(of selector: String) async throws -> String {
        try await run("document.querySelector(\(Self.quoted(selector)))?.innerText ?? ''")
    }

    /// Presses a key where the focus is.
    func press(_ key: String) async throws {
        let codes = ["Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, " ": 32]
        let text = key == "Enter" ? "\r" : key.count == 1 ? key : ""
        for type in [text.isEmpty ? "rawKeyDown" : "keyDown", "keyUp"] {
            var parameters: [String: Any] = ["type": type, "key": key, "windowsVirtualKeyCode": codes[key] ?? Int(key.utf16.first ?? 0)]
            if type == "keyDown" { parameters["text"] = text }
            try await call("Input.dispatchKeyEvent", parameters)
        }
    }

    /// Types where the focus is.
    func type(_ text: String, into selector: String) async throws {
        try await run(
            "(document.querySelector(\(Self.quoted(selector))).focus(), document.querySelector(\(Self.quoted(selector))).value = '')")
        try await call("Input.insertText", ["text": text])
        try await press("Enter")
    }

    func resize(width: Int, height: Int) async throws {
        try await call(
            "Emulation.setDeviceMetricsOverride", ["width": width, "height": height, "deviceScaleFactor": 1, "mobile": false])
    }

    func prefer(dark: Bool) async throws {
        try await call(
            "Emulation.setEmulatedMedia", ["features": [["name": "prefers-color-scheme", "value": dark ? "dark" : "light"]]])
    }

    /// Keeps a picture for people to look at, in `.build/screenshots` or where `HAPAX_SCREENSHOTS` says.
    func screenshot(_ name: String) async throws {
        struct Picture: Decodable { var data: Data }
        let picture = try await call("Page.captureScreenshot", ["format": "png"], as: Picture.self)
        let place = ProcessInfo.processInfo.environment["HAPAX_SCREENSHOTS"] ?? ".build/screenshots"
        let directory = PackageLayout.root.appending(path: place)
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        try picture.data.write(to: directory.appending(path: "\(name).png"))
    }

    static func quoted(_ text: String) -> String {
        String(decoding: (try? JSONEncoder().encode(text)) ?? Data(), as: UTF8.self)
    }
}
