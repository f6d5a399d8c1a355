#if HAPAX_APPLE_STUBS
import AppleStubs
#elseif canImport(SwiftUI)
import SwiftUI
#endif

#if HAPAX_APPLE_STUBS || canImport(SwiftUI)
import HapaxClient
import HapaxModel

extension View {
    /// Gives the views of a window the client that they track with, as `@Environment(\.eventClient)` and by ``trackScreen(_:properties:)``. Once for
    /// each window, around all it shows:
    ///
    ///     WindowGroup { ContentView().eventClient(client) }
    ///
    /// Without it they use `EventClient.shared`, and all windows are one.
    public func eventClient(_ client: EventClient) -> some View { modifier(EventsOfWindow(client: client)) }

    /// Tracks `$AppViewScreen` when this view is seen and another screen was before; a view that appears again makes no event, and when a view above
    /// it goes, as a sheet or by a pop, this one is the screen again. What `EventClient/trackScreen(_:properties:)` says of names and properties
    /// holds here as well.
    public func trackScreen(_ name: String, properties: Properties = [:]) -> some View {
        modifier(TrackedScreen(name: name, properties: properties))
    }
}

extension EnvironmentValues {
    /// Whom views track with: what ``SwiftUI/View/eventClient(_:)`` says of their window, else `EventClient.shared`.
    public var eventClient: EventClient {
        get { self[ClientKey.self] ?? .shared }
        set { self[ClientKey.self] = newValue }
    }

    var screens: ScreenStack {
        get { self[ScreensKey.self] }
        set { self[ScreensKey.self] = newValue }
    }
}

private struct ClientKey: EnvironmentKey {
    static let defaultValue: EventClient? = nil
}

private struct ScreensKey: EnvironmentKey {
    static let defaultValue = ScreenStack()
}

private struct EventsOfWindow: ViewModifier {
    let client: EventClient
    @State private var screens = ScreenStack()

    func body(content: Content) -> some View {
        content.environment(\.eventClient, client).environment(\.screens, screens)
    }
}

private struct TrackedScreen: ViewModifier {
    let name: String
    let properties: Properties
    @Environment(\.eventClient) private var client
    @Environment(\.screens) private var screens
    @State private var place = ScreenStack.Place()

    func body(content: Content) -> some View {
        content
            .onAppear { screens.appeared(place, name, properties, client) }
            .onDisappear { screens.disappeared(place) }
            // `onChange` has two forms, each of which is deprecated or missing on some system.
            .task(id: name) { [screens, place, name, properties] in screens.renamed(place, name, properties) }
    }
}
#endif
