/// The events that Hapax names itself (R42). An app tracks `$AppClick` by its name.
enum AutomaticEvent: String, Hashable, Sendable, CaseIterable {
    /// The app became active.
    case appStart = "$AppStart"
    /// It entered the background, ended, or was found to have ended.
    case appEnd = "$AppEnd"
    /// The system launched it without showing it.
    case appStartPassively = "$AppStartPassively"
    /// A screen was shown.
    case appViewScreen = "$AppViewScreen"
    /// Something was tapped or clicked.
    case appClick = "$AppClick"
}
