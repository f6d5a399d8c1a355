#if os(Linux)
/// As much of SwiftUI as the modifiers use, with the signatures of the iOS 18 SDK; ``StubWindow`` takes the place of what renders.
@MainActor
public protocol View {
    associatedtype Body: View
    var body: Body { get }
}

extension Never: View {
    public var body: Never { preconditionFailure("nobody asks for it") }
}

@MainActor
public protocol ViewModifier {
    associatedtype Body: View
    typealias Content = StubContent
    func body(content: Content) -> Body
}

@propertyWrapper
public struct State<Value>: StubState {
    private final class Place {
        var value: Value
        init(_ value: Value) { self.value = value }
    }
    private let place: Place
    public init(wrappedValue: Value) { place = Place(wrappedValue) }
    public var wrappedValue: Value { place.value }
    func take(_ other: any StubState) { if let other = other as? Self { place.value = other.place.value } }
}

protocol StubState {
    func take(_ other: any StubState)
}

public protocol EnvironmentKey {
    associatedtype Value
    static var defaultValue: Value { get }
}

public struct EnvironmentValues {
    private var values: [ObjectIdentifier: Any] = [:]

    public subscript<Key: EnvironmentKey>(_ key: Key.Type) -> Key.Value {
        get { values[ObjectIdentifier(key)] as? Key.Value ?? Key.defaultValue }
        set { values[ObjectIdentifier(key)] = newValue }
    }
}

@propertyWrapper
public struct Environment<Value>: StubEnvironmentReader {
    private final class Place { var values = EnvironmentValues() }
    private let place = Place()
    private let path: KeyPath<EnvironmentValues, Value>
    public init(_ path: KeyPath<EnvironmentValues, Value>) { self.path = path }
    public var wrappedValue: Value { place.values[keyPath: path] }
    func take(_ values: EnvironmentValues) { place.values = values }
}

protocol StubEnvironmentReader {
    func take(_ values: EnvironmentValues)
}

extension View {
    public func modifier(_ modifier: some ViewModifier) -> some View { StubModified(content: self, modifier: modifier) }
    public func onAppear(perform action: (() -> Void)? = nil) -> some View {
        StubContent(self) { window, _ in window.appears.append(action ?? {}) }
    }
    public func onDisappear(perform action: (() -> Void)? = nil) -> some View {
        StubContent(self) { window, _ in window.disappears.append(action ?? {}) }
    }
    public func task<Value: Equatable>(
        id value: Value, priority: TaskPriority = .userInitiated, @_inheritActorContext _ action: @escaping @Sendable () async -> Void
    ) -> some View {
        StubContent(self) { window, _ in
            if (window.watched as? Value) != value { window.changes.append(action) }
            window.watched = value
        }
    }
    public func environment<Value>(_ path: WritableKeyPath<EnvironmentValues, Value>, _ value: Value) -> some View {
        StubContent(self) { _, values in values[keyPath: path] = value }
    }
}

/// A view that changes its window or the environment, and then shows what is in it.
public struct StubContent: View {
    typealias Change = @MainActor (StubWindow, inout EnvironmentValues) -> Void
    fileprivate let content: (any View)?
    fileprivate let change: Change
    init(_ content: (any View)?, _ change: @escaping Change = { _, _ in }) { (self.content, self.change) = (content, change) }
    public var body: Never { preconditionFailure("nobody asks for it") }
}

private struct StubModified: View {
    let content: any View
    let modifier: any ViewModifier
    var body: Never { preconditionFailure("nobody asks for it") }
}

/// Something to show.
public struct Text: View {
    public init(_ text: String) {}
    public var body: Never { preconditionFailure("nobody asks for it") }
}

public struct Button: View {
    public init(_ title: String, action: @escaping @MainActor () -> Void) {}
    public var body: Never { preconditionFailure("nobody asks for it") }
}

@MainActor
public protocol Scene {}

public struct WindowGroup: Scene {
    public init(content: () -> some View) {}
}

@MainActor
public protocol App {
    associatedtype Body: Scene
    init()
    var body: Body { get }
}

/// Shows a view, and does to it what SwiftUI does.
@MainActor
public final class StubWindow {
    fileprivate var appears: [() -> Void] = []
    fileprivate var disappears: [() -> Void] = []
    fileprivate var changes: [@Sendable () async -> Void] = []
    fileprivate var watched: Any?
    private var isShown = false
    /// Of the views, in their order: it outlasts them.
    private var states: [any StubState] = []
    private var state = 0

    public init() {}

    /// Once more to show it with other values.
    public func show(_ view: some View) {
        (appears, disappears, changes, state) = ([], [], [], 0)
        show(view, EnvironmentValues())
        // As with a view that is shown: the task of another value begins.
        if isShown { begin() }
    }

    public func appear() {
        isShown = true
        for action in appears { action() }
        begin()
    }

    private func begin() {
        for change in changes { Task { await change() } }
        changes = []
    }

    private func keep(_ new: any StubState) {
        if state < states.count { new.take(states[state]) } else { states.append(new) }
        state += 1
    }

    public func disappear() { for action in disappears { action() } }

    private func show(_ view: any View, _ values: EnvironmentValues) {
        var values = values
        switch view {
        case let view as StubContent:
            view.change(self, &values)
            if let content = view.content { show(content, values) }
        case let view as StubModified:
            for child in Mirror(reflecting: view.modifier).children {
                (child.value as? any StubEnvironmentReader)?.take(values)
                if let state = child.value as? any StubState { keep(state) }
            }
            show(view.modifier.applied(to: view.content), values)
        case is Text, is Button: break
        default: show(view.shown, values)
        }
    }
}

extension View {
    fileprivate var shown: any View { body }
}

extension ViewModifier {
    fileprivate func applied(to view: any View) -> any View { body(content: StubContent(view)) }
}
#endif
